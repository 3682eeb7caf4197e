// Disks of the guest.
import { spawnSync } from 'node:child_process'

/** Runs a program to its end; what it said is the error where it fails. */
export function run(program, words) {
  const ran = spawnSync(program, words, { encoding: 'utf8', maxBuffer: 1 << 26 })
  if (ran.error || ran.status !== 0) throw new Error(`${[program, ...words].join(' ')}: ${ran.error?.message ?? ''}${ran.stderr ?? ''}${ran.stdout ?? ''}`)
  return ran.stdout
}

/** An ext4 image with the contents of a directory, without a mount. */
export function makeImage(from, to, size) {
  run('mke2fs', ['-q', '-t', 'ext4', '-O', '^has_journal', '-m', '0', '-d', from, to, size])
}
