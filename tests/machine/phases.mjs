// What is done in which guest. Each phase boots anew, since some of them change the machine for good.
import { apparmor } from './apparmor.mjs'
import { closed } from './closed.mjs'
import { containers } from './containers.mjs'
import { SUITES } from './payload.mjs'
import { runInGuest } from './suites.mjs'

/**
 * @typedef {{guest: import('./guest.mjs').Guest, top: string, suites: object[], only: RegExp|null, results: object[]}} Task
 * @type {Record<string, {minutes: number, kernelWords?: string[], memory?: string, run: (task: Task) => Promise<void>}>}
 */
export const PHASES = {
  plain: { minutes: 240, run: plain },
  closed: { minutes: 40, run: closed },
  apparmor: { minutes: 20, run: apparmor },
  containers: { minutes: 20, run: containers },
  broken: { minutes: 20, kernelWords: ['airlock.breakable=1'], run: broken },
}

/** The promises as root and as a person, on the machine as Debian ships it. */
async function plain({ guest, top, suites, only, results }) {
  const wanted = SUITES.flatMap((name) => suites.filter(({ suite }) => suite === name))
  for (const column of ['root', 'user']) results.push(...(await runInGuest(guest, top, wanted, column, { only, leaveOut })))
}

/** Attacks whose controls change the whole machine: only this guest has the word for them, and nothing else runs in it. */
async function broken({ guest, top, suites, only, results }) {
  const wanted = suites.filter(({ suite }) => suite === 'promises::attacks')
  const column = 'root'
  const these = /^promises::attacks::machine::/
  results.push(...(await runInGuest(guest, top, wanted, column, { only: { test: (name) => these.test(name) && (only === null || only.test(name)) } })))
}

function leaveOut(suite, name) {
  if (/real_agent::/.test(name)) return 'the agent is a program of 200 MB with a compiler in it, for which an emulated processor is too slow'
  if (/^promises::attacks$/.test(suite) && /^machine::/.test(name)) return 'it has a guest of its own, which may be broken'
  return null
}
