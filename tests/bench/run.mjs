// `npm run bench`: release builds, then every side in one run as the same ordinary user. Raw samples go to target/bench.
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { provide } from '../../src-tauri/setup/system.mjs'
import { ordinaryUser } from '../run/person.mjs'
import { at } from '../run/rust.mjs'

const top = resolve(dirname(fileURLToPath(import.meta.url)), '../..')
const target = resolve(top, process.env.CARGO_TARGET_DIR ?? 'target')
const programs = ['airlock', 'airlock-warden', 'airlock-jail', 'bench']

function must(program, words, options = {}) {
  const ran = spawnSync(program, words, { cwd: top, stdio: ['ignore', 'inherit', 'inherit'], ...options })
  if (ran.status !== 0) {
    console.error(`${program} ${words.slice(0, 3).join(' ')} … ended with ${ran.error?.message ?? ran.status}`)
    process.exit(1)
  }
}

const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'airlock-tests')

/** A directory of the cache of the tests, made once for what `files` of `from` say; `make` fills it. */
function once(name, from, files, make) {
  const dir = join(cache, name)
  const [wanted, done] = [files.map((f) => readFileSync(join(from, f), 'utf8')).join('\n'), join(dir, 'installed')]
  if (!existsSync(done) || readFileSync(done, 'utf8') !== wanted) {
    rmSync(dir, { recursive: true, force: true })
    mkdirSync(dir, { recursive: true })
    cpSync(from, dir, { recursive: true })
    make(dir)
    writeFileSync(done, wanted)
  }
  return dir
}

const QUIET = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error']
const NPM = ['package.json', 'package-lock.json']
const peersAt = join(top, 'tests/fixtures/peers')

/** What the sides need: other sandboxes by their lock files, crates and an npm cache for the work done inside. */
function material() {
  const npm = (name) => once(name, join(peersAt, name), NPM, (dir) => must('npm', ['ci', ...QUIET], { cwd: dir }))
  const work = once('bench-npm', join(peersAt, 'sandbox-runtime'), NPM, (dir) => {
    must('npm', ['ci', ...QUIET, '--cache', join(dir, 'cache')], { cwd: dir })
    rmSync(join(dir, 'node_modules'), { recursive: true })
  })
  const cargo = once('bench-crates', join(top, 'tests/fixtures/bench/cargo'), ['manifest.toml', 'Cargo.lock'], (dir) => {
    // By its usual name it would be taken for a crate of this project.
    renameSync(join(dir, 'manifest.toml'), join(dir, 'Cargo.toml'))
    mkdirSync(join(dir, '.cargo'))
    must('cargo', ['vendor', '--locked', '--quiet'], { cwd: dir, stdio: ['ignore', 'ignore', 'inherit'] })
    // Quiet, newer ones do not print it.
    writeFileSync(join(dir, '.cargo/config.toml'), '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "vendor"\n')
  })
  const sysroot = spawnSync('rustc', ['--print', 'sysroot'], { cwd: top, encoding: 'utf8' }).stdout.trim()
  return { srt: npm('sandbox-runtime'), codex: npm('codex'), cargo, toolchain: sysroot, npm: work }
}

/** The words for the bench: where its material is. */
function words({ srt, codex, cargo, npm, toolchain }) {
  return [
    ['--srt', join(srt, 'node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js')],
    ['--codex', join(codex, 'node_modules/@openai/codex/bin/codex.js')],
    ['--cargo', cargo],
    ['--toolchain', toolchain],
    ['--npm', npm],
    ['--npm-cache', join(npm, 'cache')],
    process.argv.slice(2),
  ].flat()
}

if (!provide('bench')) {
  console.error('Nothing was measured.')
  process.exit(1)
}
must('cargo', ['build', '--release', '-p', 'cli', '-p', 'warden', '-p', 'jail', '-p', 'promises', ...programs.flatMap((p) => ['--bin', p])])
const built = programs.map((p) => join(target, 'release', p))
const found = material()
const out = join(target, 'bench')
mkdirSync(out, { recursive: true })
const kept = join(out, 'samples.json')
rmSync(kept, { force: true })
const bench = (program, before, words, options) => {
  const ran = spawnSync(program, [...before, ...words], { stdio: ['ignore', 'inherit', 'inherit'], ...options })
  if (ran.status !== 0) console.error(`\nThe bench ended with ${ran.error?.message ?? ran.signal ?? ran.status}: not everything was measured.`)
  return ran.status === 0
}

let whole
if (process.getuid() !== 0) {
  whole = bench(built[3], [], ['--out', kept, ...words(found)], { cwd: top })
} else {
  const person = ordinaryUser(top, { programs: built, suites: [{ suite: 'bench', binary: built[3], cwd: top }] }, ['bench'])
  try {
    // Root's cache and toolchain are closed to that user, who has copies of them, as if installed by themselves.
    const own = (dir) => join(person.env.HOME, '.cache/airlock-tests', basename(dir))
    const copies = Object.fromEntries(Object.entries(found).map(([name, dir]) => [name, own(dir)]))
    const lent = join(person.env.AIRLOCK_TEST_RUSTUP, 'toolchains/lent')
    const samples = join(person.env.HOME, 'samples.json')
    const [program, ...before] = [...at(person.prefix, '/'), person.suites[0].binary]
    whole = bench(program, before, ['--out', samples, ...words({ ...copies, toolchain: lent })], { env: person.env, cwd: '/' })
    if (existsSync(samples)) copyFileSync(samples, kept)
    for (const left of person.left()) {
      whole = false
      console.error(`left behind: ${left}`)
    }
  } finally {
    person.end()
  }
}
console.log(`\nraw samples: ${kept}`)
process.exit(whole ? 0 : 1)
