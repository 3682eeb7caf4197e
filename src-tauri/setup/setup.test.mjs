// The setup's judgements, on systems that this machine is not.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isFresh } from './fresh.mjs'
import { installCommands, managerOf, missing, provide } from './system.mjs'
import { atLeast, tooOld, versionIn } from './versions.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const SYSTEMS = {
  debian: 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n',
  ubuntu: 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nID_LIKE=debian\n',
  fedora: 'PRETTY_NAME="Fedora Linux 41 (Workstation Edition)"\nID=fedora\n',
  arch: "NAME='Arch Linux'\nID=arch\n",
  unknown: 'PRETTY_NAME="NixOS 24.11"\nID=nixos\n',
}
const nothing = { program: () => false, library: () => false, module: () => false, python: () => false, place: () => false }
const all = { program: () => true, library: () => true, module: () => true, python: () => true, place: () => true }

/** What `npm start -- --dry-run` prints on a system where nothing is installed yet. */
function dryRun(system) {
  const dir = mkdtempSync(join(tmpdir(), 'airlock-setup-'))
  try {
    const file = join(dir, 'os-release')
    writeFileSync(file, SYSTEMS[system])
    return spawnSync(process.execPath, [join(here, 'start.mjs'), '--dry-run', '--assume-missing', '--os-release', file], { encoding: 'utf8' })
  } finally {
    rmSync(dir, { recursive: true })
  }
}

test('each known system is given its own package manager and names', () => {
  const sudo = process.getuid() === 0 ? '' : 'sudo '
  const apt = [`would run: ${sudo}apt-get update`, `would run: ${sudo}apt-get install -y --no-install-recommends gcc libc6-dev pkg-config libwebkit2gtk-4.1-dev`]
  const expected = {
    debian: apt,
    ubuntu: apt,
    fedora: [`would run: ${sudo}dnf install -y gcc glibc-devel pkgconf-pkg-config webkit2gtk4.1-devel`],
    arch: [`would run: ${sudo}pacman -S --needed --noconfirm gcc pkgconf webkit2gtk-4.1`],
  }
  for (const [system, lines] of Object.entries(expected)) {
    const shown = dryRun(system)
    assert.equal(shown.status, 0, shown.stderr)
    assert.deepEqual(shown.stdout.split('\n').filter((l) => l.startsWith('would run')), lines, system)
    assert.match(shown.stdout, /WebKitGTK 4\.1 with headers: the window is drawn by it/, 'it says why')
  }
})

test('an unknown system gets the list and a stop, no command', () => {
  const shown = dryRun('unknown')
  assert.equal(shown.status, 1)
  assert.match(shown.stdout, /a C compiler \(cc\): libgit2/)
  assert.match(shown.stdout, /does not know the package manager of NixOS 24\.11/)
  assert.doesNotMatch(shown.stdout, /would run/)
})

test('a derivative is served as its family', () => {
  assert.equal(managerOf({ ID: 'linuxmint', ID_LIKE: 'ubuntu debian' }), 'apt')
  assert.equal(managerOf({ ID: 'manjaro', ID_LIKE: 'arch' }), 'pacman')
  assert.equal(managerOf({ ID: 'constructor' }), null, 'a name of the language is no family')
  assert.equal(managerOf({}), null)
})

test('sudo is used only where something is missing and one is not root', () => {
  const run = []
  const options = { release: { ID: 'debian' }, asRoot: false, say: () => {}, run: (c) => run.push(c) }
  assert.equal(provide('start', { ...options, probe: all }), true)
  assert.deepEqual(run, [], 'nothing is missing, nothing runs')
  assert.deepEqual(installCommands(missing('start', nothing), { ID: 'debian' }, true)[0], ['apt-get', 'update'])
  assert.deepEqual(installCommands(missing('start', nothing), { ID: 'debian' }, false)[0], ['sudo', 'apt-get', 'update'])
})

test('without root and without sudo the commands are shown and nothing runs', () => {
  const said = []
  const ready = provide('start', { release: { ID: 'debian' }, asRoot: false, probe: nothing, say: (line) => said.push(line), run: () => assert.fail('nothing may run') })
  assert.equal(ready, false)
  assert.match(said.join('\n'), /ask an administrator to run\n {2}apt-get update\n {2}apt-get install/)
})

test('an installation that fails, or that leaves something missing, is told', () => {
  for (const [run, words] of [[() => false, /That failed: apt-get update/], [() => true, /Still missing after the installation: pkg-config/]]) {
    const said = []
    assert.equal(provide('start', { release: { ID: 'debian' }, asRoot: true, probe: nothing, say: (line) => said.push(line), run }), false)
    assert.match(said.join('\n'), words)
  }
})

test('a terminal needs no toolkit, and starting needs no test driver', () => {
  const names = (purpose) => missing(purpose, nothing).map((need) => need.what)
  assert.deepEqual(names('terminal'), ['a C compiler (cc)'])
  assert.deepEqual(names('start'), ['a C compiler (cc)', 'pkg-config', 'WebKitGTK 4.1 with headers'])
  assert.deepEqual(names('test').slice(-10), ['Xvfb', 'WebKitWebDriver', 'Chromium', 'dbus-daemon', 'gnome-keyring-daemon and secret-tool', 'TLS for perl (IO::Socket::SSL)', 'requests for python', 'ssh-agent', 'bubblewrap (bwrap)', 'apparmor_parser'])
  const beside = (purpose) => names(purpose).filter((what) => !names('test').includes(what))
  assert.deepEqual(beside('long'), ['PostgreSQL and Redis', 'a C++ compiler (c++)'])
  assert.deepEqual(beside('machine'), ['QEMU', 'debootstrap', 'mke2fs'], 'neither longer form needs the other')
  assert.deepEqual(beside('bench'), ['ripgrep (rg)', 'socat'])
})

test('versions are compared as numbers, and an old or missing tool is told with what to do', () => {
  assert.ok(atLeast('1.100.0', '1.90'))
  assert.ok(atLeast('20.19', '20.19'))
  assert.ok(!atLeast('20.9.1', '20.19'))
  assert.ok(!atLeast('1.89.9', '1.90'))
  assert.equal(versionIn('git version 2.39.5 (Debian)'), '2.39.5')
  const tools = [{ name: 'Rust', least: '1.90', ask: ['rustc'], mend: 'Update it.' }]
  assert.deepEqual(tooOld(tools, () => 'rustc 1.63.0'), ['Rust is 1.63.0; Airlock needs 1.90 or newer. Update it.'])
  assert.deepEqual(tooOld(tools, () => null), ['Rust is missing; Airlock needs 1.90 or newer. Update it.'])
  assert.deepEqual(tooOld(tools, () => 'rustc 1.90.0'), [])
})

test('what was made is fresh until a source is newer', () => {
  const dir = mkdtempSync(join(tmpdir(), 'airlock-fresh-'))
  try {
    mkdirSync(join(dir, 'ui/src'), { recursive: true })
    mkdirSync(join(dir, 'ui/dist'))
    const [source, made] = [join(dir, 'ui/src/a.ts'), join(dir, 'ui/dist/index.html')]
    writeFileSync(source, '')
    assert.ok(!isFresh(made, [join(dir, 'ui')]), 'nothing was made yet')
    writeFileSync(made, '')
    const at = (file, time) => utimesSync(file, time, time)
    for (const path of [source, join(dir, 'ui/src'), join(dir, 'ui')]) at(path, 1000)
    at(made, 2000)
    assert.ok(isFresh(made, [join(dir, 'ui')]))
    at(source, 3000)
    assert.ok(!isFresh(made, [join(dir, 'ui')]))
  } finally {
    rmSync(dir, { recursive: true })
  }
})
