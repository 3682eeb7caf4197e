// What one run brings into the guest.
import { chmodSync, copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeImage, run } from './disk.mjs'

const here = dirname(fileURLToPath(import.meta.url))
/** Suites that mean something on another kernel, in the order in which they are run; one that does not exist is not in the build. */
export const SUITES = ['promises::jail', 'promises::egress', 'promises::attacks', 'supervise', 'promises::journeys']

/**
 * The second disk: programs and test binaries in cargo's layout, the checkout as a clone, and the guest's own scripts.
 * @param {{programs: string[], suites: {suite: string, binary: string}[]}} built
 * @param {string} staticJail the jail program as a package has it: without an interpreter
 */
export function payload(top, built, staticJail, to) {
  const tree = mkdtempSync(join(dirname(to), 'payload-'))
  try {
    cpSync(join(here, 'guest'), join(tree, 'guest'), { recursive: true })
    mkdirSync(join(tree, 'debug/deps'), { recursive: true })
    for (const program of built.programs) copyFileSync(program, join(tree, 'debug', basename(program)))
    mkdirSync(join(tree, 'debug/static'))
    copyFileSync(staticJail, join(tree, 'debug/static/airlock-jail'))
    for (const { suite, binary } of built.suites) if (SUITES.includes(suite)) copyFileSync(binary, join(tree, 'debug/deps', basename(binary)))
    run('git', ['clone', '-q', '--no-hardlinks', '--depth', '1', `file://${top}`, join(tree, 'checkout')])
    run('chown', ['-R', '0:0', tree])
    chmodSync(tree, 0o755)
    writeFileSync(join(tree, 'top'), `${top}\n`)
    rmSync(to, { force: true })
    makeImage(tree, to, '2G')
  } finally {
    rmSync(tree, { recursive: true, force: true })
  }
}
