// Runs test binaries in the guest, one process a test, as tests/run/rust.mjs does on this machine.
import { basename } from 'node:path'
import { fullName, listed, result } from '../run/results.mjs'

/** One test in the guest; under an emulated processor everything takes ten to thirty times as long. */
const LIMIT_S = 900
/** By how much waits of the tests are longer there. */
const PATIENCE = 10

/** A word for the shell. */
export const quoted = (word) => `'${String(word).replaceAll("'", "'\\''")}'`

/** What a test needs around it, in the guest. */
export function surroundings(top) {
  return `export AIRLOCK_TEST_GUEST=1 AIRLOCK_TEST_PATIENCE=${PATIENCE}\ncd ${quoted(`${top}/tests`)}\n`
}

/**
 * Runs suites as `root` or as `user`, two tests at a time, in the order in which they are listed.
 * @param {(suite: string, name: string) => string|null} leaveOut why a test is not run in the guest, or null
 */
export async function runInGuest(guest, top, suites, column, { leaveOut = () => null, only = null, say = console.log } = {}) {
  const results = []
  for (const { suite, binary } of suites) {
    const program = `/srv/debug/deps/${basename(binary)}`
    const list = await guest.run(column, `${surroundings(top)}${program} --list --format terse && echo == && ${program} --list --format terse --ignored`)
    if (list.code !== 0) {
      results.push(result(suite, 'lists its tests', column, false, list.output))
      continue
    }
    const [all, hidden] = list.output.split('==\n').map(listed)
    const waiting = all.filter((name) => !hidden.includes(name) && (only === null || only.test(`${suite}::${name}`)))
    const work = async () => {
      for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
        const why = leaveOut(suite, name)
        if (why !== null) {
          say(`left out: ${suite}::${name} (${column}): ${why}`)
          results.push(result(suite, name, column, null, ''))
          continue
        }
        const start = Date.now()
        const { code, output } = await guest.run(column, `${surroundings(top)}exec ${program} --exact ${quoted(name)} --nocapture`, LIMIT_S)
        const words = code === 124 ? `${output}\nended after ${LIMIT_S} s` : output
        const ok = code === 0 && /^test result: ok\. 1 passed/m.test(output)
        const one = result(suite, name, column, ok, words)
        say(ok ? `${one.outcome} ${fullName(one)} in ${((Date.now() - start) / 1000).toFixed(1)} s` : `FAILED ${fullName(one)}\n${words}`)
        results.push(one)
        if (code === null) return
      }
    }
    await Promise.all([work(), work()])
    for (const name of waiting) results.push(result(suite, name, column, false, 'the guest was gone before it'))
    if (waiting.length > 0) break
  }
  return results
}
