// Takes one protection away in a copy and demands that the test which shows it goes red: `npm run test:teeth [NAME…]`.
//
// A patch is `tests/teeth/NAME.patch`; its first line is `# test: SUITE TEST`, where SUITE is a test target of tests/ (`jail`) or
// a crate (`policy`; `crate:jail` where a target has its name), the following `#` lines say what is taken away; with `as a user` behind
// the test, root runs it as an ordinary user, since root has no such thing; with `in the guest` it runs in that of `test:machine`, which
// has what this machine lacks. Red means: it builds, and exactly that test fails.
import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { account, place } from '../run/person.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const top = resolve(here, '../..')
const target = join(resolve(top, process.env.CARGO_TARGET_DIR ?? 'target'), 'teeth')
const wanted = process.argv.slice(2).map((name) => basename(name, '.patch'))
const patches = readdirSync(here)
  .filter((name) => name.endsWith('.patch'))
  .map((name) => ({ name: basename(name, '.patch'), file: join(here, name) }))
  .filter(({ name }) => wanted.length === 0 || wanted.includes(name))
  .map((patch) => ({ ...patch, ...readHead(patch) }))
  .sort((a, b) => (a.suite === b.suite ? 0 : a.suite < b.suite ? -1 : 1))

if (patches.length === 0) {
  console.error(wanted.length ? `no patch is named ${wanted.join(', ')}` : 'tests/teeth holds no patch: no promise is shown')
  process.exit(1)
}

// Always the same place: cargo takes a crate at another path for another crate, and would build and keep it anew each time.
const copy = join(target, 'copy')
const owner = join(target, 'copy.pid')
if (existsSync(owner) && existsSync(`/proc/${readFileSync(owner, 'utf8')}`)) {
  console.error(`process ${readFileSync(owner, 'utf8')} is at work in ${copy}; wait for it`)
  process.exit(2)
}
mkdirSync(target, { recursive: true })
writeFileSync(owner, String(process.pid))
rmSync(copy, { recursive: true, force: true })
mkdirSync(copy, { recursive: true })
// What outlives a test without its protection ends with this namespace; an ordinary user can't make one just so.
const apart = process.getuid() === 0 ? ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c', '"$@"; exit $?', 'sh'] : []
const env = { ...process.env, CARGO_TARGET_DIR: target, CARGO_TERM_QUIET: 'true' }
const rows = []
try {
  copyCheckout(copy)
  // The guest gets a clone.
  if (patches.some(({ guest }) => guest)) commit(copy)
  const tests = new Map(patches.map((patch) => [`${patch.suite} ${patch.test}`, patch]))
  const whole = new Map([...tests].map(([key, patch]) => [key, outcome(patch)]))
  for (const patch of patches) {
    const test = `${patch.suite} ${patch.test}`
    const words = verdict(patch, whole.get(test))
    console.log(words)
    rows.push([patch.name, test, words])
  }
} finally {
  rmSync(copy, { recursive: true, force: true })
  rmSync(owner)
}

const width = (i) => Math.max(...rows.map((row) => row[i].length)) + 2
console.log(`\n${'patch'.padEnd(width(0))}${'test'.padEnd(width(1))}verdict`)
for (const [name, test, words] of rows) console.log(`${name.padEnd(width(0))}${test.padEnd(width(1))}${words}`)
const good = rows.filter(([, , words]) => words === 'red').length
console.log(`\nteeth: ${good} passed, ${rows.length - good} failed`)
process.exitCode = good === rows.length ? 0 : 1

function readHead({ name, file }) {
  const head = /^# test: (\S+) (\S+)( as a user| in the guest)?$/.exec(readFileSync(file, 'utf8').split('\n', 1)[0])
  if (!head) {
    console.error(`tests/teeth/${name}.patch: its first line must be "# test: SUITE TEST", or that and "as a user" or "in the guest"`)
    process.exit(2)
  }
  return { suite: head[1], test: head[2], user: head[3] === ' as a user' && process.getuid() === 0, guest: head[3] === ' in the guest' }
}

/** `red` where the protection is shown; anything else is a sentence about why it is not. */
function verdict({ name, file, ...patch }, whole) {
  console.log(`\n== ${name}`)
  if (whole !== 'passed') return `not green without the patch: ${whole}`
  const forth = git('apply', file)
  if (forth.status !== 0) return `does not apply: ${forth.stderr.trim().split('\n')[0]}`
  try {
    const without = outcome(patch)
    if (without === 'failed') return 'red'
    return without === 'passed' ? 'STILL GREEN: nothing shows this protection' : `without it: ${without}`
  } finally {
    const back = git('apply', '--reverse', file)
    if (back.status !== 0) throw new Error(`${name} can't be taken back: ${back.stderr}`)
  }
}

/** `passed`, `failed`, or why the test could not be run at all. */
function outcome({ suite, test, user, guest }) {
  if (guest) return inGuest(suite, test)
  const own = existsSync(join(copy, 'tests', suite, 'main.rs'))
  const select = own ? ['-p', 'promises', '--test', suite] : ['-p', suite.replace(/^crate:/, ''), '--tests']
  const builds = [...(own ? [['build', '-p', 'cli', '-p', 'warden', '-p', 'jail', '-p', 'promises', '--bins']] : []), ['test', ...select, '--no-run']]
  for (const words of builds) {
    const built = run('cargo', ...words)
    if (built.status !== 0) return `does not build: ${built.stderr.split('\n').find((l) => l.startsWith('error')) ?? ''}`
  }
  const words = ['--exact', test, '--nocapture']
  const ran = user ? runAsUser(select, words) : run(...apart, 'cargo', 'test', '--no-fail-fast', ...select, '--', ...words)
  if (ran.stdout.includes('not tested here: ')) return 'not tested on this machine'
  const sum = (word) => [...ran.stdout.matchAll(/^test result: .*$/gm)].reduce((all, [line]) => all + Number(new RegExp(`(\\d+) ${word}`).exec(line)?.[1] ?? 0), 0)
  const [passed, failed] = [sum('passed'), sum('failed')]
  if (passed === 1 && failed === 0 && ran.status === 0) return 'passed'
  if (passed === 0 && failed === 1) {
    const said = /panicked at .*\n(?:.+\n){1,3}/.exec(ran.stderr)?.[0] ?? ran.stderr.slice(-400)
    console.log(said.trimEnd().slice(0, 600))
    return 'failed'
  }
  return `no such test, or it was ended: code ${ran.status}, ${passed} passed, ${failed} failed`
}

/** By `test:machine`, once as root and once as a person; red in one of them is red. */
function inGuest(suite, test) {
  const ran = run('node', 'tests/machine/run.mjs', 'plain', '--only', `^promises::${suite}::${test}$`)
  const [, passed, failed, skipped] = /^airlock: (\d+) passed, (\d+) failed, (\d+) skipped$/m.exec(ran.stdout)?.map(Number) ?? []
  if (passed + failed + skipped !== 2) return `no such test, or not run in the guest: code ${ran.status}, ${ran.stdout.slice(-400)} ${ran.stderr.slice(-400)}`
  if (failed > 0) console.log((/panicked at .*\n(?:.+\n){1,3}/.exec(ran.stdout)?.[0] ?? '').trimEnd().slice(0, 600))
  return skipped > 0 ? 'not tested in the guest' : failed > 0 ? 'failed' : 'passed'
}

/** The test's program as an ordinary user, from a place that such a one can read. */
function runAsUser(select, words) {
  const built = run('cargo', 'test', ...select, '--no-run', '--message-format', 'json').stdout.split('\n').filter((l) => l.startsWith('{')).map((l) => JSON.parse(l))
  const binary = built.findLast((m) => m.executable && m.profile?.test)?.executable
  const { uid, gid } = account()
  const dir = mkdtempSync(join(tmpdir(), 'airlock-teeth-'))
  try {
    for (const part of ['debug', 'debug/deps', 'home', 'home/run']) mkdirSync(join(dir, part), { mode: 0o755 })
    for (const own of ['home', 'home/run']) chownSync(join(dir, own), uid, gid)
    chmodSync(dir, 0o755)
    chmodSync(join(dir, 'home/run'), 0o700)
    const programs = readdirSync(dirname(dirname(binary))).map((name) => join(dirname(dirname(binary)), name))
    for (const program of programs.filter((p) => statSync(p).isFile() && statSync(p).mode & 0o1)) place(program, join(dir, 'debug', basename(program)))
    const own = join(dir, 'debug/deps', basename(binary))
    place(binary, own)
    const as = ['setpriv', '--reuid', String(uid), '--regid', String(gid), '--clear-groups', '--inh-caps=-all']
    const home = [`PATH=${process.env.PATH}`, `HOME=${join(dir, 'home')}`, `XDG_RUNTIME_DIR=${join(dir, 'home/run')}`, 'LANG=C.UTF-8']
    return run(...apart, ...as, 'env', '-i', '-C', dir, ...home, own, ...words)
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

function run(program, ...words) {
  console.log([program, ...words].join(' '))
  return spawnSync(program, words, { cwd: copy, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 28, timeout: 1_800_000 })
}

/** Beside no repository: in a directory of one, `git apply` would pass over files that lie elsewhere in it. */
function git(...words) {
  return spawnSync('git', words, { cwd: copy, env: { ...process.env, GIT_CEILING_DIRECTORIES: target }, encoding: 'utf8' })
}

function commit(dir) {
  const as = ['-c', 'user.name=teeth', '-c', 'user.email=teeth@airlock.test']
  for (const words of [['init', '-q'], ['add', '-A'], [...as, 'commit', '-qm', 'copied']]) {
    const made = spawnSync('git', words, { cwd: dir, encoding: 'utf8' })
    if (made.status !== 0) throw new Error(`git ${words.join(' ')}: ${made.stderr}`)
  }
}

/** What git knows or would add, as it is now; built pages come along by a link. */
function copyCheckout(to) {
  const list = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: top, encoding: 'utf8', maxBuffer: 1 << 26 })
  if (list.status !== 0) throw new Error(`git ls-files: ${list.stderr}`)
  for (const name of new Set(list.stdout.split('\0').filter(Boolean))) {
    const from = join(top, name)
    if (!existsSync(from)) continue
    mkdirSync(dirname(join(to, name)), { recursive: true })
    if (lstatSync(from).isSymbolicLink()) symlinkSync(readlinkSync(from), join(to, name))
    else copyFileSync(from, join(to, name))
  }
  if (existsSync(join(top, 'ui/dist'))) symlinkSync(join(top, 'ui/dist'), join(to, 'ui/dist'))
}
