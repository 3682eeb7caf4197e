// Coverage-guided fuzzing: builds tests/fuzz with LLVM's coverage and libFuzzer, by the stable toolchain, and gives each target
// its time. A planted fault comes first: a build that does not find it is guided by nothing, and shows nothing.
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { onPath } from '../../src-tauri/setup/system.mjs'
import { result } from './results.mjs'

const SUITE = 'fuzz::guided'
/** The fault that fuzzer.rs plants; it is found within the time of any target, or not at all. */
const PLANTED = 'planted'
/** Inputs grow up to this, or up to the largest that the corpus has. */
const LONGEST = 16 << 10
const OPTIONS = ['-rss_limit_mb=2048', '-timeout=10', '-report_slow_units=60', '-print_final_stats=1', '-reload=0']
/** How libFuzzer ends where one input took longer than that. */
const TIMED_OUT = 70
const FLAGS = [
  '-Cpasses=sancov-module',
  '-Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters',
  '-Cllvm-args=-sanitizer-coverage-pc-table',
  '-Cllvm-args=-sanitizer-coverage-trace-compares',
  // Compared slices stay calls of memcmp, which libFuzzer listens to: as plain loads it would see nothing of them.
  '-Cllvm-args=-max-loads-per-memcmp=0',
  '-Cllvm-args=-max-loads-per-memcmp-opt-size=0',
]

/**
 * Fuzzes every target that has a corpus, one after the other.
 * @returns {Promise<import('./results.mjs').Result[]>}
 */
export async function fuzz(top, target, { seconds = 60, only = [], say = console.log } = {}) {
  if (onPath('c++') === null) return [result(SUITE, 'finds_a_planted_fault', null, true, 'not tested here: a C++ compiler')]
  const dir = join(target, 'fuzz')
  const fuzzer = build(top, dir)
  if (fuzzer === null) return [result(SUITE, 'builds', null, false, 'cargo failed; its words are above')]
  const corpus = join(top, 'tests/fuzz/corpus')

  const ran = await one(fuzzer, PLANTED, null, dir, seconds)
  const planted = judgePlanted(ran)
  say(planted.output)
  if (planted.outcome === 'failed') return [planted]
  const floor = figures(ran.output).edges
  const results = [planted]
  for (const name of readdirSync(corpus).filter((name) => only.length === 0 || only.includes(name)).sort()) {
    let ran = await one(fuzzer, name, join(corpus, name), dir, seconds)
    // Its clock is the wall's: on a busy machine, what is slow among others may be fast by itself.
    if (ran.code === TIMED_OUT && ran.file !== null && spawnSync(fuzzer, [...OPTIONS, ran.file], { env: environment(name) }).status === 0) {
      say(`${name}: an input took too long, but not by itself; the target is given its time once more`)
      ran = await one(fuzzer, name, join(corpus, name), dir, seconds)
    }
    const judged = judge(name, ran, floor)
    say(judged.outcome === 'failed' ? `FAILED ${SUITE}::${name}\n${judged.output}` : judged.output)
    results.push(judged)
  }
  return results
}

/** The fuzzer's path; what is built for the machine itself, such as build scripts, is neither instrumented nor linked with it. */
function build(top, dir) {
  const triple = /^host: (.+)$/m.exec(spawnSync('rustc', ['-vV'], { encoding: 'utf8' }).stdout ?? '')?.[1]
  const words = ['build', '--package', 'fuzz', '--bin', 'fuzzer', '--features', 'libfuzzer', '--profile', 'fuzz', '--target', triple, '--target-dir', dir]
  const env = { ...process.env, CARGO_ENCODED_RUSTFLAGS: FLAGS.join('\x1f') }
  const made = spawnSync('cargo', words, { cwd: top, stdio: ['ignore', 'inherit', 'inherit'], env })
  return made.status === 0 ? join(dir, triple, 'fuzz/fuzzer') : null
}

/** One target for its time. What it finds is kept below the target directory until the next run, which begins with the corpus alone. */
async function one(fuzzer, name, seeds, dir, seconds) {
  const kept = join(dir, 'inputs', name)
  const faults = join(dir, 'faults', name)
  rmSync(kept, { recursive: true, force: true })
  for (const made of [kept, faults]) mkdirSync(made, { recursive: true })
  const sizes = seeds === null ? [] : readdirSync(seeds).map((file) => statSync(join(seeds, file)).size)
  const words = [...OPTIONS, `-max_total_time=${seconds}`, `-max_len=${Math.max(LONGEST, ...sizes)}`, `-artifact_prefix=${faults}/`, kept, ...(seeds === null ? [] : [seeds])]
  const child = spawn('nice', ['-n', '10', fuzzer, ...words], { env: environment(name), stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8')
    // Its first words say where it began.
    stream.on('data', (chunk) => (output = output.length > 1 << 20 ? output.slice(0, 1 << 18) + output.slice(-(1 << 18)) + chunk : output + chunk))
  }
  const code = await new Promise((resolve) => {
    child.on('error', (error) => {
      output += error.message
      resolve(null)
    })
    child.on('close', resolve)
  })
  // The input that it wrote down last is the one that it ended with.
  const file = [...output.matchAll(/Test unit written to (.+)$/gm)].at(-1)?.[1] ?? null
  return { code, output, seeds: sizes.length, file, input: file === null ? null : shown(file) }
}

function environment(name) {
  return { ...process.env, AIRLOCK_FUZZ_TARGET: name, RUST_BACKTRACE: '1' }
}

function shown(file) {
  const bytes = readFileSync(file)
  return `${file}: ${bytes.length} bytes\n${JSON.stringify(bytes.subarray(0, 2000).toString('latin1'))}`
}

/** What libFuzzer said: executions, and the coverage that it began and ended with. */
export function figures(output) {
  const seen = [...output.matchAll(/^#\d+\s+\S+\s+cov: (\d+) ft: (\d+)/gm)].map((m) => [Number(m[1]), Number(m[2])])
  const [, began = 0] = seen[0] ?? []
  const [edges = 0, features = 0] = seen.at(-1) ?? []
  return { runs: Number(/^stat::number_of_executed_units:\s*(\d+)$/m.exec(output)?.[1] ?? 0), began, edges, features }
}

/**
 * A target has passed that ran to the end of its time, on more inputs than it was given, with more of the program seen than `floor`:
 * the edges that a run sees whose input is hardly looked at.
 */
export function judge(name, { code, output, seeds, input }, floor) {
  const { runs, began, edges, features } = figures(output)
  const sum = `${name}: ${runs} executions, ${edges} edges, ${features} features (${features - began} of them new)`
  const why =
    code !== 0 || input !== null ? 'it ended with a fault' : runs <= seeds ? 'it ran nothing but its corpus' : edges <= floor ? `it saw no more than the ${floor} edges of any input` : null
  return result(SUITE, name, null, why === null, why === null ? sum : `${sum}\n${why} (code ${code})\n${input ?? ''}\n${output.split('\n').slice(-80).join('\n')}`)
}

/** The planted fault must be found, by its own panic and on a way that showed coverage. */
export function judgePlanted({ code, output }) {
  const { runs, edges } = figures(output)
  const panicked = code !== 0 && code !== null && /^the planted fault was found$/m.test(output)
  const ok = panicked && edges > 0
  const last = output.split('\n').slice(-40).join('\n')
  return result(SUITE, 'finds_a_planted_fault', null, ok, ok ? `${PLANTED}: found after ${edges} edges` : `${PLANTED}: not found in ${runs} executions that saw ${edges} edges (code ${code})\n${last}`)
}
