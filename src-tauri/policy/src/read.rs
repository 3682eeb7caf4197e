//! Reads a TOML tree key by key, so that every problem of a file is found in one go, each with its place.

use crate::problem::{Problem, position, quote};
use crate::source::NotInForce;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with the bytes it was read from.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// What has been found out about a file so far.
pub(crate) struct Notes<'t> {
    text: &'t str,
    /// What is wrong.
    pub(crate) problems: Vec<Problem>,
    /// What is written, is right, and has no effect yet.
    pub(crate) later: Vec<NotInForce>,
}

impl<'t> Notes<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new(), later: Vec::new() }
    }

    pub(crate) fn problem(&mut self, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        let (line, column) = position(self.text, span.start);
        self.problems.push(Problem { line, column, message: message.into(), hint: hint.into() });
    }

    pub(crate) fn problem_at_line(&mut self, line: u32, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(Problem { line, column: 1, message: message.into(), hint: hint.into() });
    }

    pub(crate) fn not_yet(&mut self, span: &Range<usize>, key: impl Into<String>, note: impl Into<String>) {
        let line = self.line(span);
        self.later.push(NotInForce { key: key.into(), line, note: note.into() });
    }

    pub(crate) fn line(&self, span: &Range<usize>) -> u32 {
        position(self.text, span.start).0
    }
}

/// One table, with the keys that were asked for; [`Table::end`] reports the others.
pub(crate) struct Table<'a> {
    pub(crate) path: String,
    pub(crate) span: Range<usize>,
    map: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The whole file.
    pub(crate) fn root(map: &'a Spanned<DeTable<'a>>) -> Self {
        Self { path: String::new(), span: 0..0, map: map.get_ref(), known: Vec::new() }
    }

    /// `network.rule[0].host` for the key `host`.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The raw value.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<At<&'a DeValue<'a>>> {
        self.known.push(key);
        self.map.get(key).map(|v| At { value: v.get_ref(), span: v.span() })
    }

    fn wrong<T>(&self, notes: &mut Notes<'_>, key: &str, span: &Range<usize>, want: &str) -> Option<T> {
        notes.problem(span, format!("`{}` must be {want}", self.name(key)), "");
        None
    }

    pub(crate) fn text(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Option<At<String>> {
        let At { value, span } = self.value(key)?;
        match value.as_str() {
            Some(s) => Some(At { value: s.to_owned(), span }),
            None => self.wrong(notes, key, &span, "a text in quotes"),
        }
    }

    pub(crate) fn flag(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Option<At<bool>> {
        let At { value, span } = self.value(key)?;
        match value.as_bool() {
            Some(value) => Some(At { value, span }),
            None => self.wrong(notes, key, &span, "true or false"),
        }
    }

    pub(crate) fn number(&mut self, notes: &mut Notes<'_>, key: &'static str, range: Range<u64>) -> Option<At<u64>> {
        let At { value, span } = self.value(key)?;
        match number(value).filter(|n| range.contains(n)) {
            Some(value) => Some(At { value, span }),
            None => self.wrong(notes, key, &span, &format!("a whole number from {} to {}", range.start, range.end - 1)),
        }
    }

    pub(crate) fn numbers(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Option<At<Vec<At<u64>>>> {
        let At { value, span } = self.value(key)?;
        let Some(list) = value.as_array() else { return self.wrong(notes, key, &span, "a list of whole numbers") };
        let mut out = Vec::new();
        for item in list.iter() {
            match number(item.get_ref()) {
                Some(value) => out.push(At { value, span: item.span() }),
                None => return self.wrong(notes, key, &item.span(), "a list of whole numbers"),
            }
        }
        Some(At { value: out, span })
    }

    pub(crate) fn texts(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Option<At<Vec<At<String>>>> {
        let At { value, span } = self.value(key)?;
        let Some(list) = value.as_array() else { return self.wrong(notes, key, &span, "a list of texts, as in [\"a\", \"b\"]") };
        let mut out = Vec::new();
        for item in list.iter() {
            match item.get_ref().as_str() {
                Some(s) => out.push(At { value: s.to_owned(), span: item.span() }),
                None => return self.wrong(notes, key, &item.span(), "a list of texts"),
            }
        }
        Some(At { value: out, span })
    }

    /// A list that, where it is written, must name something.
    pub(crate) fn some_texts(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Option<At<Vec<At<String>>>> {
        let list = self.texts(notes, key)?;
        if list.value.is_empty() {
            notes.problem(
                &list.span,
                format!("`{}` is empty, so it can match nothing", self.name(key)),
                "leave the key out or name something",
            );
            return None;
        }
        Some(list)
    }

    /// One of a closed list of words.
    pub(crate) fn word<T: Copy>(&mut self, notes: &mut Notes<'_>, key: &'static str, words: &[(&str, T)]) -> Option<At<T>> {
        let At { value, span } = self.text(notes, key)?;
        if let Some((_, t)) = words.iter().find(|(w, _)| *w == value) {
            return Some(At { value: *t, span });
        }
        let list: Vec<String> = words.iter().map(|(w, _)| format!("\"{w}\"")).collect();
        notes.problem(
            &span,
            format!("`{}` can't be {}", self.name(key), quote(&value)),
            format!("it is one of {}", list.join(", ")),
        );
        None
    }

    pub(crate) fn table(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Option<Table<'a>> {
        let At { value, span } = self.value(key)?;
        match value.as_table() {
            Some(map) => Some(Table { path: self.name(key), span, map, known: Vec::new() }),
            None => self.wrong(notes, key, &span, &format!("a table, as in [{}]", self.name(key))),
        }
    }

    pub(crate) fn tables(&mut self, notes: &mut Notes<'_>, key: &'static str) -> Vec<Table<'a>> {
        let Some(At { value, span }) = self.value(key) else { return Vec::new() };
        let name = self.name(key);
        let Some(list) = value.as_array() else {
            notes.problem(&span, format!("`{name}` must be a list of tables, each as in [[{name}]]"), "");
            return Vec::new();
        };
        let mut out = Vec::new();
        for (i, item) in list.iter().enumerate() {
            match item.get_ref().as_table() {
                Some(map) => out.push(Table { path: format!("{name}[{i}]"), span: item.span(), map, known: Vec::new() }),
                None => notes.problem(&item.span(), format!("`{name}` must be a list of tables, each as in [[{name}]]"), ""),
            }
        }
        out
    }

    /// Every key with a text value, for tables whose keys are the person's own.
    pub(crate) fn pairs(self, notes: &mut Notes<'_>) -> Vec<(At<String>, At<String>)> {
        let mut out = Vec::new();
        for (k, v) in self.map.iter() {
            match v.get_ref().as_str() {
                Some(s) => {
                    out.push((At { value: k.get_ref().to_string(), span: k.span() }, At { value: s.to_owned(), span: v.span() }))
                }
                None => notes.problem(&v.span(), format!("`{}` must be a text in quotes", self.name(k.get_ref())), ""),
            }
        }
        out
    }

    /// Reports every key that nothing asked for.
    pub(crate) fn end(self, notes: &mut Notes<'_>) {
        for (k, _) in self.map.iter() {
            let key: &str = k.get_ref();
            if self.known.contains(&key) {
                continue;
            }
            let near = self.known.iter().map(|w| (distance(key, w), *w)).min().filter(|(d, w)| *d <= 1 + w.len() / 4);
            let hint = match near {
                Some((_, w)) => format!("did you mean `{w}`?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            let place = if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) };
            notes.problem(&k.span(), format!("unknown key {}{place}", quote(key)), hint);
        }
    }
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let i = value.as_integer()?;
    u64::from_str_radix(i.as_str(), i.radix()).ok()
}

/// How many letters must be put in, taken out or changed to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let put = (row[j] + 1).min(row[j + 1] + 1);
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = put.min(change);
        }
    }
    row[b.len()]
}
