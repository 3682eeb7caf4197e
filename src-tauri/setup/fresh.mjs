// Whether what was made is still newer than what it was made from, so that a second start takes a second.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'

const MADE = new Set(['node_modules', 'dist', '.svelte-kit', 'coverage'])

function newest(path) {
  const about = statSync(path)
  if (!about.isDirectory()) return about.mtimeMs
  let latest = about.mtimeMs
  for (const name of readdirSync(path)) {
    if (!MADE.has(name)) latest = Math.max(latest, newest(join(path, name)))
  }
  return latest
}

/** True where `made` exists and is not older than each of `from` (files, or directories as deep as they go). */
export function isFresh(made, from) {
  if (!existsSync(made)) return false
  const stamp = statSync(made).mtimeMs
  return from.every((path) => newest(path) <= stamp)
}
