// The runner's judgements: a run must not be able to come out green for the wrong reason.
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { figures, fuzz, judge, judgePlanted } from './fuzz.mjs'
import { attackTable, count, fromJunit, fromLibtestSummary, fromTap, fromVitest, judgeAbsent, judgeAbsentThere, judgePromises, lastLine, listed, promiseTable, promisesOf, result } from './results.mjs'
import { runDirect } from './rust.mjs'
import { parseToml } from './toml.mjs'

const JUNIT = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="airlock" tests="4" failures="1">
  <testsuite name="promises::jail" tests="3" disabled="0" errors="0" failures="1">
    <testcase name="writes::p1_only_its_workspace" classname="promises::jail" time="0.1">
      <system-out>running 1 test
test writes::p1_only_its_workspace ... ok</system-out>
      <system-err></system-err>
    </testcase>
    <testcase name="fails&lt;T&gt;" classname="promises::jail" time="0.1">
      <failure message="it broke" type="test failure">why</failure>
      <system-out>&quot;out&quot;</system-out>
    </testcase>
    <testcase name="cgroups" classname="promises::jail" time="0.1"><system-out>
not tested here: cgroup delegation
</system-out></testcase>
  </testsuite>
  <testsuite name="model" tests="1" disabled="0" errors="0" failures="0">
    <testcase name="id::tests::parses" classname="model" time="0.01"/>
  </testsuite>
</testsuites>`

test('a JUnit file of nextest is read whole', () => {
  const found = fromJunit(JUNIT, 'root')
  assert.deepEqual(found.map((r) => [r.suite, r.name, r.outcome]), [
    ['promises::jail', 'writes::p1_only_its_workspace', 'passed'],
    ['promises::jail', 'fails<T>', 'failed'],
    ['promises::jail', 'cgroups', 'skipped'],
    ['model', 'id::tests::parses', 'passed'],
  ])
  assert.deepEqual(found[2].absent, ['cgroup delegation'])
  assert.equal(found[1].output, '"out"')
})

test('a test that says that it could not test is skipped, not passed', () => {
  assert.equal(result('a', 'b', null, true, 'not tested here: x').outcome, 'skipped')
  assert.equal(result('a', 'b', null, true, 'test b ... not tested here: x').absent[0], 'x')
  assert.equal(result('a', 'b', null, false, 'not tested here: x').outcome, 'failed', 'a failure stays one')
  assert.equal(result('a', 'b', null, true, 'it was not tested here: before').outcome, 'passed', 'only a line of its own counts')
})

test('names and sums of libtest are read', () => {
  assert.deepEqual(listed('a::b: test\nc: benchmark\n\n2 tests, 0 benchmarks\n'), ['a::b'])
  const doc = 'running 2 tests\ntest src/id.rs - id::TaskId (line 3) ... ok\ntest src/id.rs - id (line 9) - compile fail ... FAILED\n'
  assert.deepEqual(count(fromLibtestSummary('doc', doc, null, 101)), { passed: 1, failed: 1, skipped: 0 })
  assert.deepEqual(count(fromLibtestSummary('doc', '', null, 101)), { passed: 0, failed: 1, skipped: 0 }, 'an end without a word is a failure')
})

test('a runner that ends badly without naming a test is a failure', () => {
  assert.deepEqual(count(fromTap('setup', 'ok 1 - a\n', 1)), { passed: 1, failed: 1, skipped: 0 })
  assert.deepEqual(count(fromTap('setup', '', 0)), { passed: 0, failed: 1, skipped: 0 }, 'no test at all is one as well')
  assert.deepEqual(count(fromTap('setup', 'ok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP\n', 1)), { passed: 1, failed: 1, skipped: 1 })
  const broken = { testResults: [{ name: 'a.test.ts', status: 'failed', assertionResults: [], message: 'syntax' }] }
  assert.deepEqual(count(fromVitest('ui', broken)), { passed: 0, failed: 1, skipped: 0 })
})

const LISTED = { absent: [{ feature: 'cgroups', reason: 'none here', tier: 'test:machine', probe: 'jail::limits::p8_memory' }] }
const said = result('promises::jail', 'limits::p8_memory', 'user', true, 'not tested here: cgroups')
const silent = result('promises::jail', 'limits::p8_memory', 'user', true, '')

test('what is absent and the list must agree both ways', () => {
  assert.deepEqual(judgeAbsent([said], LISTED), [])
  assert.match(judgeAbsent([said], {})[0].name, /not in tests\/absent\.toml/)
  assert.match(judgeAbsent([silent], LISTED)[0].name, /present on this machine/)
  assert.match(judgeAbsent([], LISTED)[0].name, /did not run/)
  const short = { absent: [{ feature: 'cgroups', probe: 'jail::limits::p8_memory' }] }
  assert.equal(judgeAbsent([said], short).length, 2, 'reason and tier are not optional')
})

test('a tier that stands in for npm test must have what it is named for, and say what it lacks itself', () => {
  const passed = result('promises::jail', 'limits::p8_memory', 'root', true, '')
  const judge = (results, table) => judgeAbsentThere(results, table, 'test:machine', 'machine').map((f) => f.name)
  assert.deepEqual(judge([passed], LISTED), [])
  assert.match(judge([said], LISTED)[0], /absent there too/)
  assert.match(judge([], LISTED)[0], /did not pass there/)
  assert.match(judge([result('promises::jail', 'limits::p8_memory', 'root', false, '')], LISTED)[0], /did not pass there/)
  assert.match(judge([said], {})[0], /not listed under \[\[machine\]\]/)
  assert.deepEqual(judge([said], { absent: [{ ...LISTED.absent[0], tier: 'none' }] }), [], 'what no tier can test is listed once')
  const own = { machine: [{ feature: 'cgroups', reason: 'old', probe: 'x' }] }
  assert.deepEqual(judge([said], own), [])
  assert.match(judge([passed], own)[0], /nobody missed it there/)
  assert.match(judge([said], { machine: [{ feature: 'cgroups' }] })[0], /lacks its reason/)
})

test('a test finds its promise by its name or by the table', () => {
  const table = { promise: [{ number: 2, title: 'home', tests: ['jail::home'] }] }
  const of = (suite, name) => promisesOf({ suite, name }, table)
  assert.deepEqual(of('promises::jail', 'writes::p1_only_its_workspace'), [1])
  assert.deepEqual(of('promises::jail', 'p10_refuses'), [10])
  assert.deepEqual(of('promises::jail', 'home::is_closed'), [2])
  assert.deepEqual(of('promises::jail', 'homeless::x'), [], 'a longer name is another module')
  assert.deepEqual(of('promises::jail', 'map1_x'), [])
})

test('a line of the table that names no test is a failure', () => {
  const table = { promise: [{ number: 8, title: 'x', tests: ['jail::limits', 'jail::gone'] }] }
  assert.deepEqual(judgePromises([said], table).map((f) => f.name), ['promise 8 names jail::gone, which did not run'])
})

test('the table tells each column apart, and a column that did not run', () => {
  const table = { promise: [{ number: 8, title: 'a runaway', tests: [] }] }
  assert.match(promiseTable([said], table), /8 {2}a runaway +not run +0 passed, 1 not tested here/)
  const failed = result('promises::jail', 'p8_x', 'root', false, '')
  assert.match(promiseTable([failed, said], table), /1 FAILED of 1 +0 passed/)
})

test('the last line is the whole sum', () => {
  assert.equal(lastLine([said, silent, result('a', 'b', null, false, '')]), 'airlock: 1 passed, 1 failed, 1 skipped')
})

test('the small part of TOML is read, the rest is refused', () => {
  const text = 'twice = ["a", # why\n  "b]",\n]\n[[promise]]\nnumber = 1 # one\ntitle = "x # y"\n[[promise]]\nok = true\n'
  assert.deepEqual(parseToml(text), { twice: ['a', 'b]'], promise: [{ number: 1, title: 'x # y' }, { ok: true }] })
  for (const bad of ['a', 'a = b', 'a = 1 2', 'a = ["x"', 'a = 1\na = 2']) assert.throws(() => parseToml(bad), /line \d/, bad)
})

test("the project's own tables are well-formed", () => {
  const read = (name) => parseToml(readFileSync(new URL(`../${name}`, import.meta.url), 'utf8'))
  assert.ok(read('promises.toml').promise.length > 0)
  assert.deepEqual(judgeAbsent([], read('absent.toml')).filter((f) => f.name.startsWith('an entry lacks')), [])
})

test('without nextest, each test is a process of its own, and none passes by accident', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'airlock-runner-'))
  try {
    const binary = join(dir, 'suite')
    // Behaves like a libtest binary with four tests.
    const script = `#!/bin/sh
case "$*" in
  *--ignored*) echo 'long: test' ;;
  *--list*) printf 'good: test\\nbad: test\\ngone: test\\nlong: test\\n' ;;
  *good*) echo 'not tested here: x'; echo 'test result: ok. 1 passed; 0 failed' ;;
  *gone*) echo 'test result: ok. 0 passed; 0 failed' ;;
  *) echo 'boom'; exit 101 ;;
esac
`
    writeFileSync(binary, script)
    chmodSync(binary, 0o755)
    const log = console.log
    console.log = () => {}
    const found = await runDirect([{ suite: 's', binary, cwd: dir }], 'user').finally(() => (console.log = log))
    assert.deepEqual(Object.fromEntries(found.map((r) => [r.name, r.outcome])), { good: 'skipped', bad: 'failed', gone: 'failed' })
  } finally {
    rmSync(dir, { recursive: true })
  }
})

test('both counts of the attacks are summed by column, and those without a control are named', () => {
  const said = (column, held) => result('promises::attacks', 'x', column, true, `attacks: 3 controls succeeded, ${held} held inside (${column}; 1 without a control here)\nno control here: x32: this kernel has none\n`)
  assert.equal(attackTable([said('root', 3), said('root', 2), said('user', 3)]), 'attacks (root): 6 controls succeeded, 5 held inside, 2 without a control here\nattacks (user): 3 controls succeeded, 3 held inside, 1 without a control here\nno control here:\n  x32: this kernel has none')
  assert.equal(attackTable([result('a', 'b', null, true, '')]), '')
})

/** What libFuzzer prints of a run that ends by itself. */
const FUZZED = `INFO: Seed: 1
#12	INITED cov: 40 ft: 50 corp: 9/1b exec/s: 0 rss: 27Mb
#900	NEW    cov: 70 ft: 95 corp: 10/2b lim: 14 exec/s: 0 rss: 27Mb L: 13/13 MS: 1 ChangeByte-
#5000	DONE   cov: 71 ft: 99 corp: 10/2b lim: 14 exec/s: 0 rss: 27Mb
stat::number_of_executed_units: 5000
`

test('a fuzzed target passes only with executions, coverage and no fault', () => {
  assert.deepEqual(figures(FUZZED), { runs: 5000, began: 50, edges: 71, features: 99 })
  const ended = { code: 0, output: FUZZED, seeds: 11, input: null }
  const passed = judge('plan', ended, 10)
  assert.deepEqual([passed.suite, passed.name, passed.outcome], ['fuzz::guided', 'plan', 'passed'])
  assert.equal(passed.output, 'plan: 5000 executions, 71 edges, 99 features (49 of them new)')
  const bad = [
    [{ ...ended, code: 77, input: '/x/crash-1: 2 bytes\n"ab"' }, 10, /ended with a fault[^]*crash-1: 2 bytes\n"ab"/],
    [{ ...ended, code: null }, 10, /ended with a fault/],
    [{ ...ended, input: '/x/slow-unit: 1 bytes' }, 10, /ended with a fault/],
    [{ ...ended, output: '' }, 10, /nothing but its corpus/],
    [{ ...ended, seeds: 5000 }, 10, /nothing but its corpus/],
    [ended, 71, /no more than the 71 edges/],
  ]
  for (const [ran, floor, why] of bad) {
    const failed = judge('plan', ran, floor)
    assert.equal(failed.outcome, 'failed')
    assert.match(failed.output, why)
  }
})

test('fuzzing without the planted fault is not believed', () => {
  const found = `${FUZZED}thread '<unnamed>' panicked at fuzzer.rs:11:9:\nthe planted fault was found\n`
  assert.equal(judgePlanted({ code: 77, output: found }).outcome, 'passed')
  for (const ran of [{ code: 0, output: FUZZED }, { code: 0, output: found }, { code: null, output: found }, { code: 77, output: FUZZED }, { code: 77, output: 'the planted fault was found' }]) {
    assert.equal(judgePlanted(ran).outcome, 'failed', JSON.stringify(ran))
  }
})

test('without a compiler for it, fuzzing is absent, and the run fails where nobody said so', async () => {
  const path = process.env.PATH
  process.env.PATH = ''
  const found = await fuzz('/nowhere', '/nowhere').finally(() => (process.env.PATH = path))
  assert.deepEqual(found.map((r) => [r.outcome, r.absent]), [['skipped', ['a C++ compiler']]])
  assert.match(judgeAbsent(found, {})[0].name, /"a C\+\+ compiler" is not in tests\/absent\.toml/)
})
