// Builds every target once and runs the tests in it: by nextest where it is installed, else one process a test by itself.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fromJunit, listed, result } from './results.mjs'

const LIMIT_MS = 600_000
const AT_ONCE = 2
/** Suites whose tests share something that only one of them can have, such as two cores and a browser. */
const SERIAL = /^promises::window$/
/** Stands in a prefix for the directory that the test runs in: behind a change of namespace it must be named anew. */
export const HERE = '{cwd}'

/** A prefix for that directory. */
export function at(prefix, cwd) {
  return prefix.map((word) => (word === HERE ? cwd : word))
}

/**
 * What one `cargo build --all-targets` of these packages made.
 * @returns {{code: number, programs: string[], suites: {suite: string, binary: string, cwd: string}[]}}
 */
export function build(top, what = ['--workspace']) {
  const words = ['build', ...what, '--all-targets', '--message-format=json-render-diagnostics']
  const made = spawnSync('cargo', words, { cwd: top, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8', maxBuffer: 1 << 28 })
  const artifacts = (made.stdout ?? '')
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))
    .filter((message) => message.reason === 'compiler-artifact' && message.executable)
  const suites = artifacts.filter((a) => a.profile.test && !a.target.kind.includes('bench')).map((a) => ({ suite: suiteName(a), binary: a.executable, cwd: dirname(a.manifest_path) }))
  const programs = artifacts.filter((a) => !a.profile.test && a.target.kind.includes('bin')).map((a) => a.executable)
  return { code: made.status ?? 1, programs, suites: suites.sort((a, b) => (a.suite < b.suite ? -1 : 1)) }
}

/** The name that nextest gives a test binary. */
function suiteName(artifact) {
  const crate = /([^/#@]+)(?:#|@)[^#@]*$/.exec(artifact.package_id)?.[1] ?? ''
  const named = /#([^@]+)@/.exec(artifact.package_id)?.[1] ?? crate
  const [kind] = artifact.target.kind
  if (kind === 'test') return `${named}::${artifact.target.name}`
  return kind === 'bin' || kind === 'example' ? `${named}::${kind}/${artifact.target.name}` : named
}

/** Runs everything by nextest and reads what it wrote. */
export function runNextest(top, target, column, { ignored = false, env = {} } = {}) {
  const file = join(target, 'nextest/airlock/junit.xml')
  rmSync(file, { force: true })
  const words = ['nextest', 'run', '--workspace', '--all-targets', '--profile', 'airlock', ...(ignored ? ['--run-ignored', 'all', '-E', 'not test(/(^|::)(exit|creation)_process$/)'] : [])]
  const ran = spawnSync('cargo', words, { cwd: top, stdio: ['ignore', 'inherit', 'inherit'], env: { ...process.env, ...env } })
  const results = existsSync(file) ? fromJunit(readFileSync(file, 'utf8'), column) : []
  if (results.length === 0 || (ran.status !== 0 && !results.some((r) => r.outcome === 'failed'))) {
    results.push(result('nextest', `ended with code ${ran.status}`, column, false, 'nextest itself failed; its words are above'))
  }
  return results
}

/**
 * Runs the suites one process a test, two at a time; `prefix` is put before each command (another user, another namespace).
 * @returns {Promise<import('./results.mjs').Result[]>}
 */
export async function runDirect(suites, column, { prefix = [], env = process.env, ignored = false } = {}) {
  const results = []
  for (const { suite, binary, cwd } of suites) {
    const [program, ...words] = [...at(prefix, cwd), binary]
    const list = (extra) => spawnSync(program, [...words, '--list', '--format', 'terse', ...extra], { cwd, env, encoding: 'utf8', maxBuffer: 1 << 26 })
    const [all, hidden] = [list([]), list(['--ignored'])]
    if (all.status !== 0) {
      results.push(result(suite, 'lists its tests', column, false, `${all.stderr ?? ''}${all.error?.message ?? ''}`))
      continue
    }
    const long = new Set(listed(hidden.stdout ?? ''))
    const waiting = listed(all.stdout).filter((name) => (ignored && !/(^|::)(exit|creation)_process$/.test(name)) || !long.has(name))
    const work = async () => {
      for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
        const { code, output } = await one(program, [...words, '--exact', name, '--nocapture', ...(ignored ? ['--include-ignored'] : [])], cwd, env)
        // A name that matched nothing would end with 0 as well.
        const ok = code === 0 && /^test result: ok\. 1 passed/m.test(output)
        if (!ok) console.log(`FAILED ${suite}::${name}${column ? ` (${column})` : ''}\n${output}`)
        results.push(result(suite, name, column, ok, output))
      }
    }
    await Promise.all(Array.from({ length: SERIAL.test(suite) ? 1 : AT_ONCE }, work))
  }
  return results
}

/** One command in a process group of its own, ended as a group when its time is over. */
function one(program, words, cwd, env) {
  return new Promise((resolve) => {
    const child = spawn(program, words, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8')
      stream.on('data', (chunk) => (output = (output + chunk).slice(-(1 << 20))))
    }
    const end = (signal) => {
      try {
        process.kill(-child.pid, signal)
      } catch {
        // It ended by itself.
      }
    }
    const timer = setTimeout(() => {
      output += `\nended after ${LIMIT_MS / 1000} s`
      end('SIGKILL')
    }, LIMIT_MS)
    let grace = null
    const finish = (code) => {
      clearTimeout(timer)
      clearTimeout(grace)
      child.stdout.destroy()
      child.stderr.destroy()
      resolve({ code, output })
    }
    child.on('error', (error) => {
      output += error.message
      finish(1)
    })
    // `close` waits for the pipe, which a left-over process may hold for ever: it gets two seconds after the exit.
    let exited = 1
    child.on('exit', (code) => {
      exited = code ?? 1
      grace = setTimeout(() => finish(exited), 2000)
    })
    child.on('close', () => finish(exited))
  })
}
