// `npm run test:machine [PHASE…] [--only REGEX]`: the promises inside a stock Debian kernel, booted in QEMU. Plain Node.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { provide } from '../../src-tauri/setup/system.mjs'
import { attackTable, count, fullName, judgeAbsentThere, lastLine, promiseTable, result } from '../run/results.mjs'
import { build } from '../run/rust.mjs'
import { parseToml } from '../run/toml.mjs'
import { base } from './base.mjs'
import { Guest, tail } from './guest.mjs'
import { payload } from './payload.mjs'
import { PHASES } from './phases.mjs'

const top = resolve(dirname(fileURLToPath(import.meta.url)), '../..')
const target = resolve(top, process.env.CARGO_TARGET_DIR ?? 'target')
const logs = join(target, 'machine')
const table = (file) => parseToml(readFileSync(join(top, file), 'utf8'))

const words = process.argv.slice(2)
const at = words.indexOf('--only')
const only = at < 0 ? null : new RegExp(words.splice(at, 2)[1])
const unknown = words.find((word) => !Object.hasOwn(PHASES, word))
if (unknown) stop(`test:machine has no phase ${unknown}; there are ${Object.keys(PHASES).join(', ')}`, 2)
const phases = Object.entries(PHASES).filter(([name]) => words.length === 0 || words.includes(name))

const results = []
const minutes = []
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130))
if (process.getuid() !== 0) stop('test:machine installs packages and makes a Debian root, which only root can: run it as root, e.g. by sudo.')
if (!provide('machine')) stop('Nothing was tested.')

const built = await stage('build', () => build(top, ['--workspace', '--exclude', 'app']))
if (built.code !== 0) stop('The build failed; nothing was tested.')
const staticJail = await stage('the jail program as a package has it', buildStatic)
const images = await stage('a Debian root and its kernel', () => base(console.log))
mkdirSync(logs, { recursive: true })
const disk = join(logs, 'run.ext4')
await stage('what this run brings', () => payload(top, built, staticJail, disk))
try {
  for (const [name, phase] of phases) await stage(name, () => inGuest(name, phase))
} finally {
  rmSync(disk, { force: true })
}
finish()

/** Linked statically; in a directory of its own, since its flags are others than those of the rest. */
function buildStatic() {
  const words = ['build', '--quiet', '-p', 'jail', '--target', 'x86_64-unknown-linux-gnu', '--target-dir', join(logs, 'static')]
  const env = { ...process.env, RUSTFLAGS: `${process.env.RUSTFLAGS ?? ''} -C target-feature=+crt-static` }
  const made = spawnSync('cargo', words, { cwd: top, stdio: 'inherit', env })
  if (made.status !== 0) stop('The jail program could not be linked statically; nothing was tested.')
  return join(logs, 'static/x86_64-unknown-linux-gnu/debug/airlock-jail')
}

/** One boot: the phase gets the guest and gives results. A guest that dies or hangs is a failure, and the next phase has its own. */
async function inGuest(name, phase) {
  let guest = null
  try {
    guest = await Guest.boot({ images, payload: disk, logs, name, kernelWords: phase.kernelWords, memory: phase.memory })
    console.log(`booted in ${guest.seconds.toFixed(1)} s`)
    const limit = new Promise((resolve) => setTimeout(resolve, phase.minutes * 60_000, 'late').unref())
    const found = []
    const ended = await Promise.race([phase.run({ guest, top, suites: built.suites, only, results: found }), limit])
    results.push(...found)
    if (ended === 'late') note(name, `ends within ${phase.minutes} minutes`, false, tail(guest.log))
    else if (!guest.alive) note(name, 'the guest lives to the end', false, tail(guest.log))
  } catch (error) {
    note(name, 'boots and answers', false, error.message)
  } finally {
    guest?.end()
  }
}

function note(suite, name, ok, output = '') {
  if (!ok) console.log(`FAILED ${suite}: ${name}\n${output}`)
  results.push(result(suite, name, null, ok, output))
}

async function stage(name, work) {
  console.log(`\n== ${name}`)
  const start = Date.now()
  const worth = await work()
  minutes.push([name, (Date.now() - start) / 60_000])
  return worth
}

function stop(why, code = 1) {
  console.error(why)
  process.exit(code)
}

function finish() {
  const whole = words.length === 0 && only === null
  if (whole) for (const failure of judgeAbsentThere(results, table('tests/absent.toml'), 'test:machine', 'machine')) note(failure.suite, failure.name, false, failure.output)
  console.log(`\n${promiseTable(results, table('tests/promises.toml'))}`)
  const attacks = attackTable(results)
  if (attacks) console.log(`\n${attacks}`)
  const failed = results.filter((r) => r.outcome === 'failed')
  if (failed.length > 0) console.log(`\nfailed:\n${failed.map((r) => `  ${fullName(r)}`).join('\n')}`)
  console.log(`\n${images.release} ${images.version}${images.made ? ', made by this run' : ''}; consoles: ${logs}`)
  console.log(`minutes:\n${minutes.map(([name, min]) => `  ${min.toFixed(1).padStart(5)}  ${name}`).join('\n')}`)
  console.log(`  ${minutes.reduce((sum, [, min]) => sum + min, 0).toFixed(1).padStart(5)}  in all\n`)
  console.log(lastLine(results))
  process.exit(failed.length > 0 || count(results).passed === 0 ? 1 : 0)
}
