// `npm start`: from a fresh clone to the open window. Plain Node, no dependencies.
//
//   --dry-run            show what would be installed on this system, and stop
//   --os-release FILE    take the system to be the one that FILE describes (for --dry-run)
//   --assume-missing     as if nothing were installed yet (for --dry-run)
//
// The dev profile is what is built, since it takes less than half of the release profile's time and `npm test` uses the same
// artifacts. Numbers that compare Airlock with others come from `npm run bench`, which builds in release.
import { spawnSync } from 'node:child_process'
import { statSync, utimesSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isFresh } from './fresh.mjs'
import { osRelease, provide } from './system.mjs'
import { tooOld } from './versions.mjs'

const top = resolve(dirname(fileURLToPath(import.meta.url)), '../..')
const args = process.argv.slice(2)
const programs = join(resolve(top, process.env.CARGO_TARGET_DIR ?? 'target'), 'debug')
const started = Date.now()

const known = ['--dry-run', '--os-release', '--assume-missing']
const unknown = args.find((a, i) => !known.includes(a) && args[i - 1] !== '--os-release')
if (unknown) stop(`npm start does not know ${unknown}. It knows --dry-run, which shows what it would install.`)

if (args.includes('--dry-run')) {
  for (const line of tooOld()) console.log(line)
  const at = args.indexOf('--os-release')
  const nothing = { program: (name) => name === 'sudo', library: () => false }
  const ready = provide('start', { dryRun: true, release: osRelease(at < 0 ? undefined : args[at + 1]), ...(args.includes('--assume-missing') && { probe: nothing }) })
  process.exit(ready ? 0 : 1)
}

const old = tooOld()
if (old.length > 0) stop(old.join('\n'))
const display = Boolean(process.env.DISPLAY || process.env.WAYLAND_DISPLAY)
if (!display) console.log('There is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set), so the window is not built. The demo will run in this terminal.')
if (!provide(display ? 'start' : 'terminal')) stop('Airlock was not built.')
const steps = display ? 4 : 1

step(1, 'the command line, the warden and the jail', 'cargo', ['build', '-p', 'cli', '-p', 'warden', '-p', 'jail'])
if (!display) process.exit(run(join(programs, 'airlock'), ['demo']))
console.log(`The command line is ready: ${join(programs, 'airlock')} demo shows a whole task in another terminal while the window is built.`)

const installed = join(top, 'node_modules/.package-lock.json')
if (isFresh(installed, [join(top, 'package-lock.json')])) skip(2, 'packages of the window')
else {
  step(2, 'packages of the window', 'npm', ['ci', '--no-audit', '--no-fund'])
  touch(installed)
}
const page = join(top, 'ui/dist/index.html')
if (isFresh(page, [join(top, 'ui'), installed])) skip(3, 'the page that the window shows')
else step(3, 'the page that the window shows', 'npm', ['run', 'build', '-w', 'ui'])
step(4, 'the window', 'cargo', ['build', '-p', 'app'])

console.log(`Ready after ${seconds()} s. Opening the window; it can be closed at any time, running tasks go on.`)
const ended = run(join(programs, 'airlock-window'), [])
if (ended !== 0) console.error(`The window ended with code ${ended}. Where it could not open a display, the same demo runs in the terminal: ${join(programs, 'airlock')} demo`)
process.exit(ended)

function step(number, what, program, words) {
  console.log(`\n[${number}/${steps}] ${what}: ${program} ${words.join(' ')}`)
  const code = run(program, words)
  if (code !== 0) stop(`\nStopped at step ${number} of ${steps} (${what}): ${program} ended with code ${code}. Its own words are above.`)
}

function skip(number, what) {
  console.log(`[${number}/${steps}] ${what}: up to date`)
}

function run(program, words) {
  const done = spawnSync(program, words, { cwd: top, stdio: 'inherit' })
  if (done.error) console.error(`${program} could not be started: ${done.error.message}`)
  return done.status ?? 1
}

/** The packager may keep an older time on its stamp than the lock file's: what counts is that it ran after it. */
function touch(file) {
  const now = new Date(Math.max(Date.now(), statSync(join(top, 'package-lock.json')).mtimeMs))
  utimesSync(file, now, now)
}

function seconds() {
  return Math.round((Date.now() - started) / 1000)
}

function stop(words) {
  console.error(words)
  process.exit(1)
}
