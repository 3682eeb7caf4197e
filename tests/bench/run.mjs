// `npm run bench`: release builds, then every side in one run as the same ordinary user. Raw samples go to target/bench.
import { spawnSync } from 'node:child_process'
import { cpSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
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

/** The peer, installed once by its lock file into the cache of the tests; answers with its script. */
function peer() {
  const from = join(top, 'tests/fixtures/peers/sandbox-runtime')
  const dir = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'airlock-tests/sandbox-runtime')
  const [wanted, done] = [readFileSync(join(from, 'package-lock.json'), 'utf8'), join(dir, 'installed')]
  if (!existsSync(done) || readFileSync(done, 'utf8') !== wanted) {
    rmSync(dir, { recursive: true, force: true })
    mkdirSync(dir, { recursive: true })
    for (const file of ['package.json', 'package-lock.json']) copyFileSync(join(from, file), join(dir, file))
    must('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: dir })
    writeFileSync(done, wanted)
  }
  return dir
}

must('cargo', ['build', '--release', '-p', 'cli', '-p', 'warden', '-p', 'jail', '-p', 'promises', ...programs.flatMap((p) => ['--bin', p])])
const built = programs.map((p) => join(target, 'release', p))
const cached = peer()
const script = (dir) => join(dir, 'node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js')
const out = join(target, 'bench')
mkdirSync(out, { recursive: true })
const words = (samples, dir) => ['--out', samples, '--peer', script(dir), ...process.argv.slice(2)]

if (process.getuid() !== 0) {
  must(built[3], words(join(out, 'samples.json'), cached))
} else {
  const suites = [{ suite: 'bench', binary: built[3], cwd: top }]
  const person = ordinaryUser(top, { programs: built, suites }, ['bench'])
  const shared = mkdtempSync(join(tmpdir(), 'airlock-bench-'))
  try {
    // The cache of root is closed to others.
    spawnSync('chmod', ['755', shared])
    cpSync(cached, join(shared, 'peer'), { recursive: true })
    const samples = join(person.env.HOME, 'samples.json')
    const [program, ...before] = [...person.prefix, person.suites[0].binary]
    must(program, [...before, ...words(samples, join(shared, 'peer'))], { env: person.env, cwd: '/' })
    copyFileSync(samples, join(out, 'samples.json'))
  } finally {
    person.end()
    rmSync(shared, { recursive: true, force: true })
  }
}
console.log(`\nraw samples: ${join(out, 'samples.json')}`)
