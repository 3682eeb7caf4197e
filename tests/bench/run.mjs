// `npm run bench`: release builds, then every side in one run as the same ordinary user. Raw samples go to target/bench.
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { provide } from '../../src-tauri/setup/system.mjs'
import { ordinaryUser } from '../run/person.mjs'

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
  const cargo = once('bench-cargo', join(top, 'tests/fixtures/bench/cargo'), ['manifest.toml', 'Cargo.lock'], (dir) => {
    // By its usual name it would be taken for a crate of this project.
    renameSync(join(dir, 'manifest.toml'), join(dir, 'Cargo.toml'))
    mkdirSync(join(dir, '.cargo'))
    const ran = spawnSync('cargo', ['vendor', '--locked', '--quiet'], { cwd: dir, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' })
    if (ran.status !== 0) process.exit(1)
    writeFileSync(join(dir, '.cargo/config.toml'), ran.stdout)
  })
  const sysroot = spawnSync('rustc', ['--print', 'sysroot'], { cwd: top, encoding: 'utf8' }).stdout.trim()
  return { srt: npm('sandbox-runtime'), codex: npm('codex'), cargo, toolchain: sysroot, npm: work }
}

/** The words for the bench, with the parts of `from` copied below `to` where that is given. */
function handed(from, to) {
  const at = (name) => {
    if (!to) return from[name]
    const copy = join(to, name)
    // Hard links where that works: a toolchain has a gigabyte.
    const ran = spawnSync('cp', ['-rlL', from[name], copy])
    if (ran.status !== 0) cpSync(from[name], copy, { recursive: true, dereference: true })
    spawnSync('chmod', ['-R', 'go+rX', copy])
    return copy
  }
  const [srt, codex, npm] = [at('srt'), at('codex'), at('npm')]
  return [
    ['--srt', join(srt, 'node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js')],
    ['--codex', join(codex, 'node_modules/@openai/codex/bin/codex.js')],
    ['--cargo', at('cargo')],
    ['--toolchain', at('toolchain')],
    ['--npm', npm],
    ['--npm-cache', join(npm, 'cache')],
  ].flat()
}

provide('test')
must('cargo', ['build', '--release', '-p', 'cli', '-p', 'warden', '-p', 'jail', '-p', 'promises', ...programs.flatMap((p) => ['--bin', p])])
const built = programs.map((p) => join(target, 'release', p))
const found = material()
const out = join(target, 'bench')
mkdirSync(out, { recursive: true })
const words = (samples, dir) => ['--out', samples, ...handed(found, dir), ...process.argv.slice(2)]

if (process.getuid() !== 0) {
  must(built[3], words(join(out, 'samples.json')))
} else {
  const suites = [{ suite: 'bench', binary: built[3], cwd: top }]
  const person = ordinaryUser(top, { programs: built, suites }, ['bench'])
  const shared = mkdtempSync(join(tmpdir(), 'airlock-bench-'))
  try {
    // The cache and the toolchain of root are closed to others.
    spawnSync('chmod', ['755', shared])
    const samples = join(person.env.HOME, 'samples.json')
    const [program, ...before] = [...person.prefix, person.suites[0].binary]
    must(program, [...before, ...words(samples, shared)], { env: person.env, cwd: '/' })
    copyFileSync(samples, join(out, 'samples.json'))
  } finally {
    person.end()
    rmSync(shared, { recursive: true, force: true })
  }
}
console.log(`\nraw samples: ${join(out, 'samples.json')}`)
