// Named checks of a guest that a whole suite can't make, as a person would: by what the programs print and how they end.
import assert from 'node:assert/strict'
import { fullName, result } from '../run/results.mjs'

/** Where the programs of this build are in the guest. */
export const PROGRAMS = '/srv/debug'

/** Makes a repository of the person's and goes there. */
export const REPOSITORY = 'cd "$(mktemp -d)" && git init -q -b main && echo x >file && git add file && git -c user.name=P -c user.email=p@example.org commit -qm x'

/**
 * The checks of one phase. Each has a name of its own; what it throws is its failure.
 * @param {import('./phases.mjs').Task} task
 */
export function checks(task, suite) {
  const { guest, only, results } = task
  return {
    /** `work` gets a way to run a script as the column's user, which ends the check where the exit code is another one. */
    async check(column, name, work) {
      if (only !== null && !only.test(`${suite}::${name}`)) return
      let said = ''
      const run = async (script, code = 0, as = column) => {
        const ended = await guest.run(as, script, 300)
        said += `$ ${script}\n${ended.output}(exit code ${ended.code})\n`
        assert.equal(ended.code, code, `this must end with ${code}: ${script}`)
        return ended.output
      }
      let one
      try {
        await work(run)
        one = result(suite, name, column, true, '')
      } catch (error) {
        one = result(suite, name, column, false, `${error.message}\n${said}`)
      }
      console.log(one.outcome === 'passed' ? `passed ${fullName(one)}` : `FAILED ${fullName(one)}\n${one.output}`)
      results.push(one)
    },
  }
}

/** What `airlock doctor --json` says, with its exit code; `program` may stand in a container. */
export async function doctor(run, code, { program = `${PROGRAMS}/airlock`, as } = {}) {
  const said = await run(`${program} doctor --json 2>/dev/null`, code, as)
  return JSON.parse(said)
}

/** The rows of a report that are not full, as `GUARANTEE STATUS`. */
export function weak({ report }) {
  return report.rows.filter((row) => row.status !== 'full').map((row) => `${row.guarantee} ${typeof row.status === 'string' ? row.status : Object.keys(row.status)[0]}`)
}

/** The one blocker, which must have a command; gives that command as root types it. */
export function cure({ blockers }, named) {
  assert.equal(blockers.length, 1, `one thing blocks: ${JSON.stringify(blockers)}`)
  const [{ why, command }] = blockers
  assert.ok(why.includes(named), `the blocker names ${named}: ${why}`)
  assert.ok(command, `there is one command: ${why}`)
  return command.replace(/^sudo /, '')
}
