// The images that the guest boots from: Debian's root and kernel, kept by their versions.
import { createHash } from 'node:crypto'
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeImage, run } from './disk.mjs'
import { available, debootstrap, unpackKernel } from './packages.mjs'

const here = dirname(fileURLToPath(import.meta.url))
/** The ordinary user of the guest. */
export const PERSON = 'airlock-tester'
/** Modules that stand between the kernel and its root. */
const DISKS = ['virtio_pci', 'virtio_blk', 'ext4']

/** Beside `airlock-tests`, where tests keep other people's programs: that is copied for the ordinary user, this is large. */
function cacheDir() {
  return join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'airlock-machine')
}

/**
 * Root, kernel and first file system, made once for each set of versions.
 * @returns {{root: string, kernel: string, initramfs: string, release: string, version: string, made: boolean}}
 */
export function base(say) {
  const found = available()
  const recipe = ['base.mjs', 'packages.mjs', 'guest/init'].map((file) => readFileSync(join(here, file), 'utf8'))
  const key = createHash('sha256').update(JSON.stringify([found, recipe])).digest('hex').slice(0, 16)
  const cache = cacheDir()
  const dir = join(cache, key)
  const images = { root: join(dir, 'root.ext4'), kernel: join(dir, 'vmlinuz'), initramfs: join(dir, 'initramfs'), release: found.kernel.release, version: found.kernel.version }
  if (existsSync(dir)) return { ...images, made: false }
  say(`making a Debian ${found.codename} with ${found.kernel.name} ${found.kernel.version}; it is kept in ${cache}`)
  mkdirSync(cache, { recursive: true })
  const scratch = mkdtempSync(join(cache, 'making-'))
  try {
    const root = join(scratch, 'root')
    debootstrap(found, root)
    const kernel = join(scratch, 'kernel')
    unpackKernel(found.kernel, kernel, join(scratch, 'packages'))
    cpSync(join(kernel, 'lib/modules'), join(root, 'usr/lib/modules'), { recursive: true })
    furnish(root, found.kernel.release)
    const done = join(scratch, 'done')
    mkdirSync(done)
    copyFileSync(join(kernel, 'boot', `vmlinuz-${found.kernel.release}`), join(done, 'vmlinuz'))
    makeInitramfs(root, found.kernel.release, scratch, join(done, 'initramfs'))
    for (const waste of ['usr/share/doc', 'usr/share/man', 'usr/share/locale', 'var/cache/apt', 'var/lib/apt/lists']) {
      for (const entry of readdirSync(join(root, waste))) rmSync(join(root, waste, entry), { recursive: true })
    }
    makeImage(root, join(done, 'root.ext4'), '6G')
    for (const old of readdirSync(cache)) if (/^[0-9a-f]{16}$/.test(old)) rmSync(join(cache, old), { recursive: true })
    renameSync(done, dir)
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
  return { ...images, made: true }
}

/** What a person's machine has besides the packages: one account, whose session lives without a login. */
function furnish(root, release) {
  const inside = (...words) => run('chroot', [root, ...words])
  inside('depmod', release)
  inside('useradd', '--create-home', '--shell', '/bin/bash', '--comment', 'runs the tests of Airlock', PERSON)
  mkdirSync(join(root, 'var/lib/systemd/linger'), { recursive: true })
  writeFileSync(join(root, 'var/lib/systemd/linger', PERSON), '')
  writeFileSync(join(root, 'etc/hostname'), 'airlock-machine\n')
  writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost airlock-machine\n::1 localhost\n')
  writeFileSync(join(root, 'etc/fstab'), '')
  inside('systemctl', 'set-default', 'multi-user.target')
}

/** The smallest thing that finds the disks: busybox, three modules and what these need. */
function makeInitramfs(root, release, scratch, to) {
  const tree = join(scratch, 'initramfs')
  for (const dir of ['bin', 'modules', 'proc', 'sys', 'dev', 'new']) mkdirSync(join(tree, dir), { recursive: true })
  copyFileSync(join(root, 'bin/busybox'), join(tree, 'bin/busybox'))
  copyFileSync(join(here, 'guest/init'), join(tree, 'init'))
  chmodSync(join(tree, 'init'), 0o755)
  const modules = `/lib/modules/${release}`
  const needs = new Map(
    readFileSync(join(root, modules, 'modules.dep'), 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line) => line.split(/:\s*/))
      .map(([module, before]) => [module, before.split(' ').filter(Boolean)]),
  )
  const builtIn = readFileSync(join(root, modules, 'modules.builtin'), 'utf8')
  const order = []
  for (const name of DISKS) {
    const file = [...needs.keys()].find((m) => basename(m) === `${name}.ko`)
    if (!file && builtIn.includes(`/${name}.ko`)) continue
    if (!file) throw new Error(`the kernel's package has no module ${name}`)
    // modules.dep lists what a module needs in reverse order of loading.
    for (const one of [...needs.get(file).toReversed(), file]) if (!order.includes(one)) order.push(one)
  }
  // An implementation that ext4 asks for by its algorithm's name alone.
  const crc = [...needs.keys()].find((m) => basename(m) === 'crc32c_generic.ko')
  if (crc) order.unshift(crc)
  for (const module of order) copyFileSync(join(root, modules, module), join(tree, 'modules', basename(module)))
  writeFileSync(join(tree, 'modules/order'), order.map((m) => `${basename(m)}\n`).join(''))
  const script = `cd "$1" && find . | "$2" cpio -o -H newc 2>/dev/null | gzip -1 >"$3"`
  run('sh', ['-c', script, 'sh', tree, join(root, 'bin/busybox'), to])
}
