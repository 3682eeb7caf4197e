// The part of TOML that tests/*.toml uses: comments, strings, numbers, booleans, arrays of them, tables and arrays of tables.

/** Parses `text`; anything outside that part is an error with its line. */
export function parseToml(text) {
  const top = {}
  let table = top
  const lines = text.split('\n')
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i].trim()
    if (line === '' || line.startsWith('#')) continue
    const head = /^\[\[([A-Za-z0-9_-]+)\]\]\s*(#.*)?$/.exec(line)
    if (head) {
      table = {}
      ;(top[head[1]] ??= []).push(table)
      continue
    }
    const plain = /^\[([A-Za-z0-9_-]+)\]\s*(#.*)?$/.exec(line)
    if (plain) {
      table = top[plain[1]] = {}
      continue
    }
    const pair = /^([A-Za-z0-9_-]+)\s*=\s*(.*)$/.exec(line)
    if (!pair) throw new Error(`line ${i + 1}: not understood: ${line}`)
    let words = pair[2]
    const first = i
    while (words.startsWith('[') && !closed(words)) {
      if (++i >= lines.length) throw new Error(`line ${first + 1}: the array is not closed`)
      words += `\n${lines[i]}`
    }
    if (Object.hasOwn(table, pair[1])) throw new Error(`line ${first + 1}: ${pair[1]} stands twice`)
    table[pair[1]] = value(words, first + 1)
  }
  return top
}

/** Each token of a value: a string, a comment, or one other character. */
const TOKEN = /"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[^\s]/g

function closed(words) {
  return (words.match(TOKEN) ?? []).includes(']')
}

function value(words, line) {
  const tokens = words.match(/"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[[\],]|[^\s[\],#"']+/g) ?? []
  const rest = tokens.filter((t) => !t.startsWith('#'))
  if (rest[0] === '[') {
    if (rest.at(-1) !== ']') throw new Error(`line ${line}: more stands behind the array`)
    return rest.slice(1, -1).filter((t) => t !== ',').map((t) => scalar(t, line))
  }
  if (rest.length !== 1) throw new Error(`line ${line}: one value was expected`)
  return scalar(rest[0], line)
}

function scalar(token, line) {
  if (token.startsWith('"')) return JSON.parse(token)
  if (token.startsWith("'")) return token.slice(1, -1)
  if (token === 'true' || token === 'false') return token === 'true'
  if (/^[+-]?\d+(\.\d+)?$/.test(token)) return Number(token)
  throw new Error(`line ${line}: not a value: ${token}`)
}
