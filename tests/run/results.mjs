// What came out of each test, whoever ran it, and what a whole run amounts to. Pure: words in, words out.

/**
 * One test: `suite` is the binary as nextest names it (`promises::jail`, `model`), `column` is `root` or `user`.
 * @typedef {{suite: string, name: string, column: string|null, outcome: 'passed'|'failed'|'skipped', absent: string[], output: string}} Result
 */

/** A test that said that this machine lacks what it needs counts as skipped, not as passed. */
export function result(suite, name, column, ok, output) {
  const absent = ok === null ? [] : [...output.matchAll(/^(?:.*\.\.\. )?not tested here: (.+?)\s*$/gm)].map((m) => m[1])
  const outcome = ok === null ? 'skipped' : !ok ? 'failed' : absent.length > 0 ? 'skipped' : 'passed'
  return { suite, name, column, outcome, absent, output }
}

/** Results in a JUnit file as nextest writes it. */
export function fromJunit(xml, column) {
  const results = []
  for (const [, suiteName, body] of xml.matchAll(/<testsuite name="([^"]*)"[^>]*>([\s\S]*?)<\/testsuite>/g)) {
    for (const [, head, , inner = ''] of body.matchAll(/<testcase ((?:[^>"]|"[^"]*")*?)(\/>|>([\s\S]*?)<\/testcase>)/g)) {
      const name = decode(/\bname="([^"]*)"/.exec(head)?.[1] ?? '')
      const output = [...inner.matchAll(/<system-(?:out|err)>([\s\S]*?)<\/system-(?:out|err)>/g)].map((m) => decode(m[1])).join('\n')
      const ok = /<skipped\b/.test(inner) ? null : !/<(failure|error)\b/.test(inner)
      results.push(result(decode(suiteName), name, column, ok, output))
    }
  }
  return results
}

function decode(text) {
  const named = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }
  const plain = text.replace(/<!\[CDATA\[([\s\S]*?)\]\]>/g, '$1')
  return plain.replace(/&(?:#x([0-9a-fA-F]+)|#(\d+)|(\w+));/g, (all, hex, dec, word) =>
    hex ? String.fromCodePoint(parseInt(hex, 16)) : dec ? String.fromCodePoint(Number(dec)) : (named[word] ?? all),
  )
}

/** Names that `BINARY --list --format terse` prints. */
export function listed(text) {
  return text.split('\n').flatMap((line) => (line.endsWith(': test') ? [line.slice(0, -': test'.length)] : []))
}

/** Sums of every `test result:` line of libtest (doc tests come as one line a crate). */
export function fromLibtestSummary(suite, text, column, code) {
  const results = []
  for (const [, name, state] of text.matchAll(/^test (.+?) \.\.\. (ok|FAILED|ignored)\b.*$/gm)) {
    results.push(result(suite, name, column, state === 'ignored' ? null : state === 'ok', ''))
  }
  if (code !== 0 && !results.some((r) => r.outcome === 'failed')) results.push(result(suite, `ended with code ${code}`, column, false, text))
  return results
}

/** Results of `node --test --test-reporter=tap`: one line a top-level test. */
export function fromTap(suite, text, code) {
  const results = [...text.matchAll(/^(not )?ok \d+ - (.*?)(?: # (SKIP|TODO)\b.*)?$/gm)].map(([, not, name, skip]) => result(suite, name, null, skip ? null : !not, ''))
  if (results.length === 0 || (code !== 0 && !results.some((r) => r.outcome === 'failed'))) results.push(result(suite, `ended with code ${code}`, null, code === 0 && results.length > 0, text))
  return results
}

/** Results of vitest's JSON reporter. */
export function fromVitest(suite, json) {
  const results = json.testResults.flatMap((file) =>
    file.assertionResults.map((t) => result(suite, t.fullName, null, t.status === 'passed' ? true : t.status === 'failed' ? false : null, (t.failureMessages ?? []).join('\n'))),
  )
  for (const file of json.testResults) {
    if (file.status === 'failed' && file.assertionResults.length === 0) results.push(result(suite, file.name, null, false, file.message ?? ''))
  }
  return results
}

/** Which promises (numbers of the architecture document) a test shows: by `p7_` in its name, or by tests/promises.toml. */
export function promisesOf(test, table) {
  const full = plainName(test)
  const own = [...full.matchAll(/(?:^|[:_])p(\d{1,2})(?=_)/g)].map((m) => Number(m[1]))
  const told = (table.promise ?? []).filter((p) => (p.tests ?? []).some((start) => matches(start, full)))
  return [...new Set([...own, ...told.map((p) => p.number)])].sort((a, b) => a - b)
}

const matches = (start, full) => full === start || full.startsWith(`${start}::`) || full.startsWith(`${start}_`)
const plainName = ({ suite, name }) => `${suite.replace(/^promises::/, '')}::${name}`

/** Lines of tests/promises.toml that name no test any more: a renamed test must not fall out of the table unseen. */
export function judgePromises(results, table) {
  const names = new Set(results.map(plainName))
  return (table.promise ?? []).flatMap(({ number, tests = [] }) =>
    tests.filter((start) => ![...names].some((full) => matches(start, full))).map((start) => result('promises', `promise ${number} names ${start}, which did not run`, null, false, '')),
  )
}

/** Failures that come from comparing `not tested here` lines with tests/absent.toml, both ways. */
export function judgeAbsent(results, absent) {
  const known = new Map((absent.absent ?? []).map((entry) => [entry.feature, entry]))
  const failures = []
  const said = new Map()
  for (const r of results) for (const feature of r.absent) said.set(feature, [...(said.get(feature) ?? []), r])
  for (const [feature, by] of said) {
    if (!known.has(feature)) failures.push(result('absent', `"${feature}" is not in tests/absent.toml`, null, false, `said by ${by.map(fullName).join(', ')}`))
  }
  for (const entry of known.values()) {
    for (const key of ['feature', 'reason', 'tier', 'probe']) {
      if (typeof entry[key] !== 'string' || entry[key] === '') failures.push(result('absent', `an entry lacks its ${key}`, null, false, JSON.stringify(entry)))
    }
    if (said.has(entry.feature)) continue
    const probes = results.filter((r) => plainName(r) === entry.probe)
    const why = probes.length === 0 ? `its probe ${entry.probe} did not run` : 'it is present on this machine: take it out of the list'
    failures.push(result('absent', `"${entry.feature}" is listed, but ${why}`, null, false, ''))
  }
  return failures
}

/**
 * Failures of a tier that stands in for what `npm test` lacks, here `tier`: what it is named for must be there and be tested, and
 * what it lacks itself must be listed under `[[SECTION]]`, since another tier tests that.
 */
export function judgeAbsentThere(results, absent, tier, section) {
  const failures = []
  const own = new Map((absent[section] ?? []).map((entry) => [entry.feature, entry]))
  const listedElsewhere = new Map((absent.absent ?? []).map((entry) => [entry.feature, entry]))
  const promised = new Map([...listedElsewhere].filter(([, entry]) => entry.tier === tier))
  const said = new Map()
  for (const r of results) for (const feature of r.absent) said.set(feature, [...(said.get(feature) ?? []), r])
  for (const [feature, by] of said) {
    if (promised.has(feature)) failures.push(result('absent', `"${feature}" is to be tested by ${tier}, but is absent there too`, null, false, `said by ${by.map(fullName).join(', ')}`))
    else if (!own.has(feature) && !listedElsewhere.has(feature)) failures.push(result('absent', `"${feature}" is not listed under [[${section}]] in tests/absent.toml`, null, false, `said by ${by.map(fullName).join(', ')}`))
  }
  for (const entry of promised.values()) {
    if (!results.some((r) => plainName(r) === entry.probe && r.outcome === 'passed')) failures.push(result('absent', `"${entry.feature}" is to be tested by ${tier}, but its probe ${entry.probe} did not pass there`, null, false, ''))
  }
  for (const entry of own.values()) {
    for (const key of ['feature', 'reason', 'probe']) {
      if (typeof entry[key] !== 'string' || entry[key] === '') failures.push(result('absent', `an entry of [[${section}]] lacks its ${key}`, null, false, JSON.stringify(entry)))
    }
    if (!said.has(entry.feature)) failures.push(result('absent', `"${entry.feature}" is listed under [[${section}]], but nobody missed it there (its probe: ${entry.probe})`, null, false, ''))
  }
  return failures
}

/** A test as a reader finds it. */
export function fullName(r) {
  return `${r.suite}::${r.name}${r.column ? ` (${r.column})` : ''}`
}

/** How many of each outcome. */
export function count(results) {
  const sums = { passed: 0, failed: 0, skipped: 0 }
  for (const r of results) sums[r.outcome]++
  return sums
}

/** The table promise × column. */
export function promiseTable(results, table) {
  const cell = (number, column) => {
    const of = results.filter((r) => r.column === column && promisesOf(r, table).includes(number))
    const { passed, failed, skipped } = count(of)
    if (of.length === 0) return 'no test'
    return failed > 0 ? `${failed} FAILED of ${of.length}` : `${passed} passed${skipped ? `, ${skipped} not tested here` : ''}`
  }
  const ran = (column) => results.some((r) => r.column === column)
  const lines = [`${'promise'.padEnd(60)}${'as root'.padEnd(30)}as an ordinary user`]
  for (const { number, title } of table.promise ?? []) {
    const cells = ['root', 'user'].map((column) => (ran(column) ? cell(number, column) : 'not run'))
    lines.push(`${`${String(number).padStart(2)}  ${title}`.slice(0, 58).padEnd(60)}${cells[0].padEnd(30)}${cells[1]}`)
  }
  return lines.join('\n')
}

/** Both counts of the hostile programs, as root and as an ordinary user, and which of them had no control on this machine. */
export function attackTable(results) {
  const sums = new Map()
  const none = new Set()
  for (const { output } of results) {
    for (const [, controls, held, column, without] of output.matchAll(/^attacks: (\d+) controls succeeded, (\d+) held inside \((\w+); (\d+) without a control here\)$/gm)) {
      const sum = sums.get(column) ?? [0, 0, 0]
      sums.set(column, [sum[0] + Number(controls), sum[1] + Number(held), sum[2] + Number(without)])
    }
    for (const [, name, why] of output.matchAll(/^no control here: ([^:]+): (.+)$/gm)) none.add(`${name}: ${why}`)
  }
  if (sums.size === 0) return ''
  const lines = [...sums].map(([column, [controls, held, without]]) => `attacks (${column}): ${controls} controls succeeded, ${held} held inside, ${without} without a control here`)
  return [...lines, ...(none.size > 0 ? ['no control here:', ...[...none].sort().map((line) => `  ${line}`)] : [])].join('\n')
}

/** The last line of a run. */
export function lastLine(results) {
  const { passed, failed, skipped } = count(results)
  return `airlock: ${passed} passed, ${failed} failed, ${skipped} skipped`
}
