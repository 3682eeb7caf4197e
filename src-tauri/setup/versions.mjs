// Which Rust, Node and git are new enough, and what to do about an older one.
import { spawnSync } from 'node:child_process'

export const TOOLS = [
  { name: 'Rust', least: '1.90', ask: ['rustc', '--version'], mend: 'Install the stable toolchain from https://rustup.rs, or run `rustup update stable`.' },
  { name: 'Cargo', least: '1.90', ask: ['cargo', '--version'], mend: 'It comes with Rust: install the stable toolchain from https://rustup.rs.' },
  { name: 'Node', least: '20.19', ask: [process.execPath, '--version'], mend: 'Install Node 20.19 or newer, e.g. from https://nodejs.org.' },
  { name: 'git', least: '2.39', ask: ['git', '--version'], mend: 'Install git 2.39 or newer with your package manager.' },
]

/** The first dotted number in a program's own words, or null. */
export function versionIn(text) {
  return /(\d+(?:\.\d+)+)/.exec(text ?? '')?.[1] ?? null
}

export function atLeast(version, least) {
  const [have, want] = [version, least].map((v) => v.split('.').map(Number))
  for (let i = 0; i < want.length; i++) {
    if ((have[i] ?? 0) !== want[i]) return (have[i] ?? 0) > want[i]
  }
  return true
}

function wordOf([program, ...args]) {
  const asked = spawnSync(program, args, { encoding: 'utf8' })
  return asked.status === 0 ? asked.stdout : null
}

/** One line for each tool that is missing or too old. */
export function tooOld(tools = TOOLS, ask = wordOf) {
  const lines = []
  for (const { name, least, ask: command, mend } of tools) {
    const version = versionIn(ask(command))
    if (version === null) lines.push(`${name} is missing; Airlock needs ${least} or newer. ${mend}`)
    else if (!atLeast(version, least)) lines.push(`${name} is ${version}; Airlock needs ${least} or newer. ${mend}`)
  }
  return lines
}
