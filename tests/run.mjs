// The tests, in tiers: `node tests/run.mjs test | long | teeth | machine | bench`. Plain Node, no dependencies.
import { spawnSync } from 'node:child_process'
import { accessSync, chmodSync, constants, existsSync, mkdtempSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isFresh } from '../src-tauri/setup/fresh.mjs'
import { onPath, provide } from '../src-tauri/setup/system.mjs'
import { tooOld } from '../src-tauri/setup/versions.mjs'
import { fuzz } from './run/fuzz.mjs'
import { ordinaryUser } from './run/person.mjs'
import { attackTable, count, fromLibtestSummary, fromTap, fromVitest, fullName, judgeAbsent, judgePromises, lastLine, promiseTable, result } from './run/results.mjs'
import { build, runDirect, runNextest } from './run/rust.mjs'
import { parseToml } from './run/toml.mjs'

const top = resolve(dirname(fileURLToPath(import.meta.url)), '..')
const target = resolve(top, process.env.CARGO_TARGET_DIR ?? 'target')
const asRoot = process.getuid() === 0
const tier = process.argv[2] ?? 'test'

const results = []
const minutes = []

const TIERS = {
  test: () => everything(),
  long: () => everything({ long: true }),
  teeth: () => process.exit(shown('node', ['tests/teeth/run.mjs', ...process.argv.slice(3)])),
  machine: () => process.exit(shown('node', ['tests/machine/run.mjs', ...process.argv.slice(3)])),
  bench: () => {
    if (!existsSync(join(top, 'tests/bench/run.mjs'))) {
      console.error('tests/bench/run.mjs is missing. Nothing was measured.')
      process.exit(1)
    }
    process.exit(shown('node', ['tests/bench/run.mjs', ...process.argv.slice(3)]))
  },
}

if (!Object.hasOwn(TIERS, tier)) {
  console.error(`unknown tier ${tier}; there are ${Object.keys(TIERS).join(', ')}`)
  process.exit(2)
}
await TIERS[tier]()

async function everything({ long = false } = {}) {
  const promises = table('tests/promises.toml')
  const absent = table('tests/absent.toml')
  const column = asRoot ? 'root' : 'user'
  const env = long ? { AIRLOCK_TIER: 'long' } : {}

  await stage('this machine', () => {
    for (const line of tooOld()) note('versions', line, false)
    note('setup', 'system packages', provide(long ? 'long' : 'test'))
    openFuse()
  })
  await stage('format', () => check('format', 'cargo fmt', 'cargo', ['fmt', '--all', '--check']))
  await stage('setup and runner', () => {
    const files = ['src-tauri/setup/setup.test.mjs', 'tests/run/run.test.mjs']
    const ran = spawnSync('node', ['--test', '--test-reporter=tap', ...files], { cwd: top, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' })
    results.push(...told(fromTap('setup', ran.stdout, ran.status), ran.stdout))
  })
  const page = await stage('page of the window', pageOfTheWindow)
  if (page) await stage('clippy', () => check('clippy', 'cargo clippy', 'cargo', ['clippy', '--workspace', '--all-targets', '--quiet', '--', '-D', 'warnings']))
  const built = page ? await stage('build', () => build(top)) : null
  if (built) note('build', 'cargo build', built.code === 0)
  if (built?.code === 0) {
    const nextest = onPath('cargo-nextest') !== null
    await stage(`tests as ${asRoot ? 'root' : 'an ordinary user'}, by ${nextest ? 'nextest' : 'this runner'}`, async () => {
      results.push(...(nextest ? runNextest(top, target, column, { ignored: long, env }) : await runDirect(built.suites, column, { ignored: long, env: { ...process.env, ...env } })))
    })
    await stage('tests in the documentation', () => {
      const ran = spawnSync('cargo', ['test', '--workspace', '--doc'], { cwd: top, stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8', maxBuffer: 1 << 26 })
      const found = fromLibtestSummary('doc', ran.stdout, null, ran.status)
      results.push(...told(found, `${ran.stdout}\n${ran.stderr}`))
    })
    if (long) await stage('fuzzing, a minute a target', async () => results.push(...(await fuzz(top, target))))
    if (asRoot) await stage('promises as an ordinary user', () => promisesAsUser(built, promises.twice ?? [], { env, ignored: long }))
    results.push(...told([...judgeAbsent(results, absent), ...judgePromises(results, promises)]))
  }
  if (long) await stage('dependencies', dependencies)
  finish(promises)
}

async function promisesAsUser(built, twice, { env, ignored }) {
  const names = built.suites.map((s) => s.suite)
  for (const suite of twice) if (!names.includes(suite)) note('promises', `tests/promises.toml runs ${suite} twice, but no such suite was built`, false)
  let person
  try {
    person = ordinaryUser(top, built, twice)
  } catch (error) {
    note('promises', `an ordinary user: ${error.message}`, false)
    return
  }
  try {
    results.push(...(await runDirect(person.suites, 'user', { prefix: person.prefix, env: { ...person.env, ...env }, ignored })))
    const left = person.left()
    note('promises', `no process of the ordinary user is left${left.length ? `, but: ${left.join('; ')}` : ''}`, left.length === 0)
  } finally {
    person.end()
  }
}

function pageOfTheWindow() {
  const stamp = join(top, 'node_modules/.package-lock.json')
  const lock = join(top, 'package-lock.json')
  if (!isFresh(stamp, [lock])) {
    if (!check('page', 'npm ci', 'npm', ['ci', '--no-audit', '--no-fund'])) return false
    const now = new Date(Math.max(Date.now(), statSync(lock).mtimeMs))
    utimesSync(stamp, now, now)
  }
  check('page', 'svelte-check', 'npm', ['run', 'check', '-w', 'ui'])
  const dir = mkdtempSync(join(tmpdir(), 'airlock-vitest-'))
  try {
    const file = join(dir, 'results.json')
    const code = shown('npm', ['run', 'test', '-w', 'ui', '--', '--reporter=default', '--reporter=json', `--outputFile.json=${file}`])
    const found = existsSync(file) ? fromVitest('ui', JSON.parse(readFileSync(file, 'utf8'))) : []
    results.push(...found)
    if (found.length === 0 || (code !== 0 && count(found).failed === 0)) note('ui', `vitest ended with code ${code}`, false)
  } finally {
    rmSync(dir, { recursive: true })
  }
  return check('page', 'vite build', 'npm', ['run', 'build', '-w', 'ui'])
}

function dependencies() {
  if (onPath('cargo-deny') === null) {
    console.log('cargo-deny is not installed: licences, bans and sources of the dependencies were not checked (`cargo install cargo-deny` brings it).')
    results.push(result('dependencies', 'cargo deny', null, null, ''))
    return
  }
  check('dependencies', 'cargo deny', 'cargo', ['deny', '--config', '.cargo/deny.toml', 'check', 'bans', 'licenses', 'sources'])
}

/** Desktops have /dev/fuse open to all; a bare container may not, and decoys need it as an ordinary user. */
function openFuse() {
  const device = '/dev/fuse'
  if (!existsSync(device)) return
  try {
    if (asRoot && (statSync(device).mode & 0o666) !== 0o666) {
      console.log(`${device} is closed to ordinary users, unlike on a desktop: chmod 0666 ${device}`)
      chmodSync(device, 0o666)
    }
    accessSync(device, constants.R_OK | constants.W_OK)
  } catch (error) {
    console.log(`${device} can't be used (${error.code}); what needs it will say so.`)
  }
}

function table(file) {
  try {
    return parseToml(readFileSync(join(top, file), 'utf8'))
  } catch (error) {
    console.error(`${file}: ${error.message}`)
    process.exit(2)
  }
}

async function stage(name, work) {
  console.log(`\n== ${name}`)
  const start = Date.now()
  const worth = await work()
  minutes.push([name, (Date.now() - start) / 60_000])
  return worth
}

function shown(program, words) {
  const ran = spawnSync(program, words, { cwd: top, stdio: ['ignore', 'inherit', 'inherit'] })
  if (ran.error) console.error(`${program} could not be started: ${ran.error.message}`)
  return ran.status ?? 1
}

function check(suite, name, program, words) {
  return note(suite, name, shown(program, words) === 0)
}

function note(suite, name, ok) {
  if (!ok) console.log(`FAILED ${suite}: ${name}`)
  results.push(result(suite, name, null, ok, ''))
  return ok
}

/** Failures of others' runners are shown with their words. */
function told(found, words = '') {
  const failed = found.filter((r) => r.outcome === 'failed')
  if (failed.length > 0 && words) console.log(words)
  for (const r of failed) console.log(`FAILED ${fullName(r)}${r.output && !words ? `\n${r.output}` : ''}`)
  return found
}

function finish(promises) {
  console.log(`\n${promiseTable(results, promises)}`)
  const attacks = attackTable(results)
  if (attacks) console.log(`\n${attacks}`)
  const absent = new Map(results.flatMap((r) => r.absent.map((feature) => [`${feature}${r.column ? ` (${r.column})` : ''}`, true])))
  if (absent.size > 0) console.log(`\nnot tested here:\n${[...absent.keys()].map((feature) => `  ${feature}`).join('\n')}`)
  const failed = results.filter((r) => r.outcome === 'failed')
  if (failed.length > 0) console.log(`\nfailed:\n${failed.map((r) => `  ${fullName(r)}`).join('\n')}`)
  console.log(`\nminutes:\n${minutes.map(([name, min]) => `  ${min.toFixed(1).padStart(5)}  ${name}`).join('\n')}`)
  console.log(`  ${minutes.reduce((sum, [, min]) => sum + min, 0).toFixed(1).padStart(5)}  in all\n`)
  console.log(lastLine(results))
  process.exitCode = failed.length > 0 || count(results).passed === 0 ? 1 : 0
}
