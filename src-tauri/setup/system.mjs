// What Airlock needs from the operating system: how to see that it is there, why, and what each distribution calls it.
import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Each purpose with those whose needs are its own too: the command line, the window, the tests, their longer form, their own machine, the bench. */
const PURPOSES = { terminal: [], start: ['terminal'], test: ['terminal', 'start'], long: ['terminal', 'start', 'test'], machine: ['terminal', 'start', 'test'], bench: ['terminal', 'start', 'test'] }

/** One need: `there(probe)` looks for the thing itself, never for a package, so it is right on any distribution. */
export const NEEDS = [
  {
    what: 'a C compiler (cc)',
    why: 'libgit2 and SQLite are compiled with it',
    for: 'terminal',
    there: (probe) => probe.program('cc'),
    apt: ['gcc', 'libc6-dev'],
    dnf: ['gcc', 'glibc-devel'],
    pacman: ['gcc'],
  },
  {
    what: 'pkg-config',
    why: 'the window finds GTK and WebKit with it',
    for: 'start',
    there: (probe) => probe.program('pkg-config'),
    apt: ['pkg-config'],
    dnf: ['pkgconf-pkg-config'],
    pacman: ['pkgconf'],
  },
  {
    what: 'WebKitGTK 4.1 with headers',
    why: 'the window is drawn by it',
    for: 'start',
    there: (probe) => probe.library('webkit2gtk-4.1'),
    apt: ['libwebkit2gtk-4.1-dev'],
    dnf: ['webkit2gtk4.1-devel'],
    pacman: ['webkit2gtk-4.1'],
  },
  {
    what: 'Xvfb',
    why: 'the tests open the real window on a display of their own',
    for: 'test',
    there: (probe) => probe.program('Xvfb'),
    apt: ['xvfb'],
    dnf: ['/usr/bin/Xvfb'],
    pacman: ['xorg-server-xvfb'],
  },
  {
    what: 'WebKitWebDriver',
    why: 'the tests click in the real window with it',
    for: 'test',
    there: (probe) => probe.program('WebKitWebDriver'),
    apt: ['webkit2gtk-driver'],
    dnf: ['/usr/bin/WebKitWebDriver'],
    pacman: ['webkit2gtk-4.1'],
  },
  {
    what: 'Chromium',
    why: 'the tests start it in a jail, with its own sandbox',
    for: 'test',
    there: (probe) => probe.program('chromium'),
    apt: ['chromium'],
    dnf: ['chromium'],
    pacman: ['chromium'],
  },
  {
    what: 'dbus-daemon',
    why: 'the tests attack a real session bus',
    for: 'test',
    there: (probe) => probe.program('dbus-daemon'),
    apt: ['dbus-daemon'],
    dnf: ['dbus-daemon'],
    pacman: ['dbus'],
  },
  {
    what: 'gnome-keyring-daemon and secret-tool',
    why: 'the tests take a credential from a real keyring',
    for: 'test',
    there: (probe) => probe.program('gnome-keyring-daemon') && probe.program('secret-tool'),
    apt: ['gnome-keyring', 'libsecret-tools'],
    dnf: ['gnome-keyring', 'libsecret'],
    pacman: ['gnome-keyring', 'libsecret'],
  },
  {
    what: 'TLS for perl (IO::Socket::SSL)',
    why: 'perl is one of the clients that the tests let out',
    for: 'test',
    there: (probe) => probe.module('IO::Socket::SSL'),
    apt: ['libio-socket-ssl-perl'],
    dnf: ['perl-IO-Socket-SSL', 'perl-HTTP-Tiny'],
    pacman: ['perl-io-socket-ssl'],
  },
  {
    what: 'requests for python',
    why: 'it is one of the clients that the tests let out',
    for: 'test',
    there: (probe) => probe.python('requests'),
    apt: ['python3-requests'],
    dnf: ['python3-requests'],
    pacman: ['python-requests'],
  },
  {
    what: 'ssh-agent',
    why: 'the tests attack a real agent of keys',
    for: 'test',
    there: (probe) => probe.program('ssh-agent'),
    apt: ['openssh-client'],
    dnf: ['openssh-clients'],
    pacman: ['openssh'],
  },
  {
    what: 'bubblewrap (bwrap)',
    why: 'the bench compares with it, and tests start Airlock inside it',
    for: 'test',
    there: (probe) => probe.program('bwrap'),
    apt: ['bubblewrap'],
    dnf: ['bubblewrap'],
    pacman: ['bubblewrap'],
  },
  {
    what: 'apparmor_parser',
    why: 'the tests compile the profile of the package with it',
    for: 'test',
    there: (probe) => probe.program('apparmor_parser'),
    apt: ['apparmor'],
    dnf: ['apparmor-parser'],
    pacman: ['apparmor'],
  },
  {
    what: 'PostgreSQL and Redis',
    why: 'the longer tests speak to them from a sandbox',
    for: 'long',
    there: (probe) => probe.program('redis-server') && probe.place('/usr/lib/postgresql'),
    apt: ['postgresql', 'redis'],
    dnf: ['postgresql-server', 'redis'],
    pacman: ['postgresql', 'redis'],
  },
  {
    what: 'a C++ compiler (c++)',
    why: 'test:long compiles libFuzzer with it',
    for: 'long',
    there: (probe) => probe.program('c++'),
    apt: ['g++'],
    dnf: ['gcc-c++'],
    pacman: ['gcc'],
  },
  {
    what: 'QEMU',
    why: 'test:machine boots a stock kernel in it',
    for: 'machine',
    there: (probe) => probe.program('qemu-system-x86_64'),
    apt: ['qemu-system-x86'],
    dnf: ['qemu-system-x86-core'],
    pacman: ['qemu-system-x86'],
  },
  {
    what: 'debootstrap',
    why: 'test:machine makes its Debian with it',
    for: 'machine',
    there: (probe) => probe.program('debootstrap'),
    apt: ['debootstrap'],
    dnf: ['debootstrap'],
    pacman: ['debootstrap'],
  },
  {
    what: 'mke2fs',
    why: 'test:machine makes its disks with it',
    for: 'machine',
    there: (probe) => probe.program('mke2fs'),
    apt: ['e2fsprogs'],
    dnf: ['e2fsprogs'],
    pacman: ['e2fsprogs'],
  },
  {
    what: 'ripgrep (rg)',
    why: 'a sandbox that the bench compares with needs it',
    for: 'bench',
    there: (probe) => probe.program('rg'),
    apt: ['ripgrep'],
    dnf: ['ripgrep'],
    pacman: ['ripgrep'],
  },
  {
    what: 'socat',
    why: 'a sandbox that the bench compares with needs it',
    for: 'bench',
    there: (probe) => probe.program('socat'),
    apt: ['socat'],
    dnf: ['socat'],
    pacman: ['socat'],
  },
]

const MANAGERS = {
  apt: (packages) => [
    ['apt-get', 'update'],
    ['apt-get', 'install', '-y', '--no-install-recommends', ...packages],
  ],
  dnf: (packages) => [['dnf', 'install', '-y', ...packages]],
  pacman: (packages) => [['pacman', '-S', '--needed', '--noconfirm', ...packages]],
}

const FAMILIES = { debian: 'apt', ubuntu: 'apt', fedora: 'dnf', arch: 'pacman' }

/** The machine as it is. Tests hand in another probe. */
export const machine = {
  program: (name) => onPath(name) !== null,
  place: (path) => existsSync(path),
  // The system's own, whatever python3 is on PATH.
  python: (name) => spawnSync('/usr/bin/python3', ['-c', `import ${name}`], { stdio: 'ignore' }).status === 0,
  module: (name) => onPath('perl') !== null && spawnSync('perl', [`-M${name}`, '-e', '1'], { stdio: 'ignore' }).status === 0,
  library: (name) => onPath('pkg-config') !== null && spawnSync('pkg-config', ['--exists', name]).status === 0,
}

/** Full path of a program on `PATH`, or null. */
export function onPath(name) {
  for (const dir of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(dir || '.', name)
    try {
      accessSync(path, constants.X_OK)
      return path
    } catch {
      // Not here; the next directory may have it.
    }
  }
  return null
}

/** The fields of an os-release file; a missing file is an unknown system. */
export function osRelease(file = '/etc/os-release') {
  const text = existsSync(file) ? readFileSync(file, 'utf8') : ''
  const fields = {}
  for (const line of text.split('\n')) {
    const match = /^([A-Z_]+)=(["']?)(.*)\2\s*$/.exec(line)
    if (match) fields[match[1]] = match[3]
  }
  return fields
}

/** `apt`, `dnf`, `pacman`, or null where Airlock knows no package manager. */
export function managerOf(release) {
  const names = [release.ID, ...(release.ID_LIKE ?? '').split(/\s+/)]
  const family = names.find((name) => Object.hasOwn(FAMILIES, name ?? ''))
  return family ? FAMILIES[family] : null
}

/** What a purpose (a name of `PURPOSES`) needs and this system lacks. */
export function missing(purpose, probe = machine) {
  return NEEDS.filter((need) => (need.for === purpose || PURPOSES[purpose].includes(need.for)) && !need.there(probe))
}

/** The commands that install what is missing; null where no package manager is known. */
export function installCommands(needs, release, asRoot) {
  const manager = managerOf(release)
  if (manager === null) return null
  if (needs.length === 0) return []
  const packages = [...new Set(needs.flatMap((need) => need[manager]))]
  return MANAGERS[manager](packages).map((command) => (asRoot ? command : ['sudo', ...command]))
}

/**
 * Says what is missing and why, shows each command and runs it; with `dryRun` it only shows them.
 * Gives true where everything is there afterwards.
 */
export function provide(purpose, { release = osRelease(), asRoot = process.getuid() === 0, probe = machine, dryRun = false, say = console.log, run = runShown } = {}) {
  const needs = missing(purpose, probe)
  if (needs.length === 0) {
    if (dryRun) say('No system package is missing.')
    return true
  }
  say('Missing on this system:')
  for (const need of needs) say(`  ${need.what}: ${need.why}`)
  const commands = installCommands(needs, release, asRoot)
  if (commands === null) {
    say(`Airlock does not know the package manager of ${release.PRETTY_NAME ?? release.ID ?? 'this system'}. Install what is listed above, then start again.`)
    return false
  }
  if (dryRun) {
    for (const command of commands) say(`would run: ${command.join(' ')}`)
    return true
  }
  if (!asRoot && !probe.program('sudo')) {
    say(`Neither root nor sudo: ask an administrator to run\n${commands.map((c) => `  ${c.slice(1).join(' ')}`).join('\n')}`)
    return false
  }
  for (const command of commands) {
    say(`running: ${command.join(' ')}`)
    if (!run(command)) {
      say(`That failed: ${command.join(' ')}. Repair it by hand, then start again.`)
      return false
    }
  }
  const still = missing(purpose, probe)
  for (const need of still) say(`Still missing after the installation: ${need.what}`)
  return still.length === 0
}

function runShown([program, ...args]) {
  return spawnSync(program, args, { stdio: 'inherit', env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } }).status === 0
}
