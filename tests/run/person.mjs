// The ordinary user as whom the promise suites run a second time when the run itself is root's.
import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, existsSync, linkSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { basename, dirname, join, parse } from 'node:path'
import { HERE, at } from './rust.mjs'

const NAME = 'airlock-tester'

function quiet(program, ...words) {
  return spawnSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

/** uid, gid and home of the test's own user, made where it does not exist yet. */
export function account() {
  const find = () => /^[^:]*:[^:]*:(\d+):(\d+):[^:]*:([^:]*):/.exec(quiet('getent', 'passwd', NAME).stdout ?? '')
  let found = find()
  if (!found) {
    console.log(`making the user ${NAME}, as whom the promise suites run a second time`)
    const made = quiet('useradd', '--create-home', '--shell', '/bin/bash', '--comment', 'runs the tests of Airlock', NAME)
    found = find()
    if (!found) throw new Error(`useradd ${NAME}: ${made.stderr}`)
  }
  return { uid: Number(found[1]), gid: Number(found[2]), home: found[3] }
}

/**
 * Prepares a home, a copy of the programs in the layout that tests expect, and a view of the checkout.
 * @returns {{suites: object[], prefix: string[], env: object, left: () => string[], end: () => void}}
 */
export function ordinaryUser(top, built, twice) {
  const { uid, gid, home } = account()
  const own = (path) => chownSync(path, uid, gid)
  rmSync(home, { recursive: true, force: true })
  mkdirSync(home, { recursive: true, mode: 0o700 })
  // git refuses a checkout that another user owns; tests clone this one.
  writeFileSync(join(home, '.gitconfig'), `[safe]\n\tdirectory = ${top}\n\tdirectory = ${top}/.git\n[user]\n\tname = Test Person\n\temail = person@example.org\n`)
  mkdirSync(join(home, '.run'), { mode: 0o700 })
  for (const path of [home, join(home, '.gitconfig'), join(home, '.run')]) own(path)
  // Programs of other people that root's column installed already, so that nothing is fetched twice.
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'airlock-tests')
  if (existsSync(cache)) {
    const copy = join(home, '.cache/airlock-tests')
    mkdirSync(copy, { recursive: true })
    // The root of the machine tier is root's, and while it is made it has a /proc of which no copy ends.
    const wanted = readdirSync(cache).filter((name) => name !== 'machine')
    for (const name of wanted) quiet('cp', '--archive', '--reflink=auto', '--one-file-system', join(cache, name), copy)
    quiet('chown', '--recursive', '--no-dereference', `${uid}:${gid}`, join(home, '.cache'))
  }

  const copy = mkdtempSync(join(tmpdir(), 'airlock-user-'))
  const debug = join(copy, 'debug')
  mkdirSync(join(debug, 'deps'), { recursive: true })
  for (const path of [copy, debug, join(debug, 'deps')]) own(path)
  chmodSync(copy, 0o755)
  for (const program of built.programs) place(program, join(debug, basename(program)))
  const suites = built.suites
    .filter(({ suite }) => twice.includes(suite))
    .map((s) => {
      const binary = join(debug, 'deps', basename(s.binary))
      place(s.binary, binary)
      return { ...s, binary }
    })

  const as = ['setpriv', '--reuid', String(uid), '--regid', String(gid), '--clear-groups', '--inh-caps=-all']
  let view
  try {
    view = viewOf(top, as)
  } catch (error) {
    rmSync(copy, { recursive: true, force: true })
    throw error
  }
  const env = {
    PATH: process.env.PATH,
    LANG: 'C.UTF-8',
    TERM: 'xterm-256color',
    HOME: home,
    USER: NAME,
    LOGNAME: NAME,
    SHELL: '/bin/bash',
    XDG_RUNTIME_DIR: join(home, '.run'),
    ...(process.env.CI && { CI: process.env.CI }),
    ...lend(copy),
    ...Object.fromEntries(Object.entries(process.env).filter(([key]) => /^(npm_config_|AIRLOCK_TEST_)/i.test(key))),
  }
  return {
    suites,
    prefix: [...view.prefix, ...as],
    env,
    left: () => processesOf(uid),
    end: () => {
      view.end()
      rmSync(copy, { recursive: true, force: true })
    },
  }
}

/**
 * Toolchains that lie in a home which is closed to that user, by hard links: nothing is copied where both are on one file system.
 * @returns {object} where they are, as tests read it
 */
function lend(copy) {
  const lent = {}
  const link = (from, to) => {
    mkdirSync(dirname(to), { recursive: true })
    if (quiet('cp', '--archive', '--link', from, to).status !== 0) {
      rmSync(to, { recursive: true, force: true })
      quiet('cp', '--archive', '--reflink=auto', from, to)
    }
  }
  const rust = quiet('rustc', '--print', 'sysroot').stdout?.trim()
  if (rust) {
    for (const part of ['bin', 'lib']) link(join(rust, part), join(copy, 'rustup/toolchains/lent', part))
    lent.AIRLOCK_TEST_RUSTUP = join(copy, 'rustup')
  }
  const pyenv = quiet('pyenv', 'root').stdout?.trim()
  const version = quiet('pyenv', 'version-name').stdout?.trim()
  if (pyenv && version && existsSync(join(pyenv, 'versions', version))) {
    const to = join(copy, 'pyenv')
    for (const part of ['bin', 'libexec', 'pyenv.d', join('versions', version)]) if (existsSync(join(pyenv, part))) link(join(pyenv, part), join(to, part))
    writeFileSync(join(to, 'version'), `${version}\n`)
    // Shims name the root that they were made for.
    spawnSync(join(to, 'bin/pyenv'), ['rehash'], { env: { ...process.env, PYENV_ROOT: to } })
    lent.AIRLOCK_TEST_PYENV = to
  }
  return lent
}

/** A hard link where that works: the programs of a debug build are large. */
export function place(from, to) {
  try {
    linkSync(from, to)
  } catch {
    copyFileSync(from, to)
    chmodSync(to, 0o755)
  }
}

/**
 * How that user sees the checkout. Where it or a directory above it is closed to others (`/root`), a mount namespace of the run's
 * own shows its entries at their paths below an otherwise empty directory; the machine's own permissions stay as they are.
 */
function viewOf(top, as) {
  const seen = (prefix) => quiet(...at(prefix, '/'), ...as, 'test', '-r', join(top, 'tests/Cargo.toml')).status === 0
  if (seen([])) return { prefix: [], end: () => {} }
  const above = [top]
  for (let dir = dirname(top); dir !== parse(dir).root; dir = dirname(dir)) above.unshift(dir)
  const closed = above.find((dir) => (statSync(dir).mode & 0o001) === 0)
  if (!closed) throw new Error(`files of ${top} are closed to others: chmod -R go+rX ${top}`)
  const script = `set -e
top=$1 closed=$2 note=$3
keep=$(mktemp -d)
mount --bind "$top" "$keep"
mount -t tmpfs -o mode=0755 tmpfs "$closed"
mkdir -p "$top"
cd "$keep"
for entry in $(ls -A); do
  if [ -d "$entry" ]; then mkdir "$top/$entry"; else touch "$top/$entry"; fi
  mount --bind "$entry" "$top/$entry"
done
cd /
umount "$keep"
rmdir "$keep"
echo $$ >"$note"
exec sleep infinity
`
  const note = join(mkdtempSync(join(tmpdir(), 'airlock-view-')), 'pid')
  // The shell that starts it ends at once; the note names the process that holds the namespace.
  const start = `unshare --mount --propagation private bash -c "$0" view "$1" "$2" "$3" >/dev/null 2>"$3.err" </dev/null &
for i in $(seq 100); do [ -s "$3" ] && exit 0; kill -0 $! || break; sleep 0.1; done
cat "$3.err" >&2; exit 1`
  const held = quiet('bash', '-c', start, script, top, closed, note)
  const pid = held.status === 0 ? Number(readFileSync(note, 'utf8')) : null
  const end = () => {
    if (pid !== null) process.kill(pid, 'SIGKILL')
    rmSync(dirname(note), { recursive: true, force: true })
  }
  const prefix = ['nsenter', `--mount=/proc/${pid}/ns/mnt`, 'env', '-C', HERE]
  if (pid === null || !seen(prefix)) {
    end()
    throw new Error(`a view of ${top} for ${NAME} could not be made: ${held.stderr || 'its files are closed to others'}`)
  }
  return { prefix, end }
}

/** What still runs as that user: after the last test there should be nothing. */
function processesOf(uid) {
  const found = []
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue
    try {
      if (lstatSync(`/proc/${pid}`).uid !== uid) continue
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()
      // A zombie has no command line and nothing left to end.
      if (words) found.push(`${pid}: ${words.slice(0, 120)}`)
    } catch {
      // It ended meanwhile.
    }
  }
  return found
}
