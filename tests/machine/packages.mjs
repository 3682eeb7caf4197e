// What the machine tier takes from Debian: which versions, from where. The mirror is the one that apt uses here.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/** A stock desktop's ground: the person's systemd session, git, AppArmor, FUSE, podman; and what the tests call. */
export const INCLUDE = [
  'apparmor',
  'busybox-static',
  'ca-certificates',
  'crun',
  'curl',
  'dbus',
  'dbus-user-session',
  'fuse3',
  'gcc',
  'git',
  'iproute2',
  'kmod',
  'libc6-dev',
  'libcap2-bin',
  'libpam-systemd',
  'openssh-client',
  'podman',
  'procps',
  'python3',
  'systemd',
  'systemd-sysv',
  'udev',
  'wget',
]

const META = 'linux-image-cloud-amd64'

function ask(program, ...words) {
  const ran = spawnSync(program, words, { encoding: 'utf8', maxBuffer: 1 << 26 })
  if (ran.error || ran.status !== 0) throw new Error(`${[program, ...words].join(' ')}: ${ran.error?.message ?? ran.stderr}`)
  return ran.stdout
}

/** The versions that apt would install, in the order of the names. */
function candidates(names) {
  const found = new Map([...ask('apt-cache', 'policy', ...names).matchAll(/^(\S+):\n(?: .*\n)*? {2}Candidate: (.+)$/gm)].map(([, name, version]) => [name, version]))
  return names.map((name) => {
    const version = found.get(name) ?? '(none)'
    if (version === '(none)') throw new Error(`apt knows no package ${name}: run apt-get update`)
    return version
  })
}

/** The package of the kernel itself: the meta package only depends on it. */
function kernelPackage() {
  const depends = ask('apt-cache', 'depends', '--important', META)
  const name = /^ {2}Depends: (linux-image-\S+)$/m.exec(depends)?.[1]
  if (!name) throw new Error(`apt does not know what ${META} depends on: ${depends}`)
  return { name, release: name.slice('linux-image-'.length), version: candidates([name])[0] }
}

/** Where apt takes Debian's main archive from, and the release's name. */
function archive() {
  const lines = ask('apt-get', 'indextargets', '--format', '$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)', 'Created-By: Packages').split('\n')
  const found = lines.map((line) => line.split(' ')).find(([origin, component, codename]) => origin === 'Debian' && component === 'main' && /^[a-z]+$/.test(codename))
  if (!found) throw new Error('apt has no list of Debian itself: run apt-get update')
  return { codename: found[2], mirror: found[3] }
}

/** What there is now; asks apt to look again where its lists are empty. */
export function available() {
  const look = () => ({ ...archive(), kernel: kernelPackage(), versions: candidates(INCLUDE) })
  try {
    return look()
  } catch {
    ask('apt-get', 'update', '-q')
    return look()
  }
}

/** Unpacks the kernel's package: `boot/`, `lib/modules/`. Never over a root, whose `/lib` is a symlink that unpacking would replace. */
export function unpackKernel({ name }, into, scratch) {
  mkdirSync(scratch, { recursive: true })
  const ran = spawnSync('apt-get', ['download', '-q', name], { cwd: scratch, encoding: 'utf8' })
  const file = readdirSync(scratch).find((f) => f.startsWith(`${name}_`) && f.endsWith('.deb'))
  if (!file) throw new Error(`apt-get download ${name}: ${ran.stderr}`)
  ask('dpkg-deb', '--extract', join(scratch, file), into)
}

/**
 * A Debian in a directory, without recommended packages. What that mounts and starts ends with namespaces of its own; apt resolves
 * the packages, since debootstrap knows no alternatives.
 */
export function debootstrap({ codename, mirror }, into) {
  const script = `set -e
debootstrap --variant=minbase "$1" "$2" "$3"
mount -t proc proc "$2/proc"
printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
chmod +x "$2/usr/sbin/policy-rc.d"
export DEBIAN_FRONTEND=noninteractive
chroot "$2" apt-get install -q -y --no-install-recommends ${INCLUDE.join(' ')}
rm "$2/usr/sbin/policy-rc.d"
`
  const apart = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child']
  const ran = spawnSync('unshare', [...apart, 'sh', '-c', script, 'sh', codename, into, mirror], { encoding: 'utf8', maxBuffer: 1 << 26 })
  if (ran.status !== 0) throw new Error(`a Debian could not be made: ${ran.error?.message ?? ran.stdout.split('\n').slice(-15).join('\n')}\n${ran.stderr ?? ''}`)
}
