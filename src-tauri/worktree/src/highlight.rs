//! Syntax colours for whole files, as ranges of characters per line.

use model::diff::Class;
use model::id::BlobId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

/// Larger files are plain.
const SIZE: usize = 1 << 20;
/// Longer lines are plain.
const LINE: usize = 2_000;
/// Colouring ends after this, so that a file made to be slow stays plain instead.
const TIME: Duration = Duration::from_secs(2);
/// So many coloured files are kept.
const KEPT: usize = 16;

/// For each line, ranges in order: the character at which one ends, and its class.
pub(crate) type Colours = Vec<Vec<(u32, Class)>>;

/// Coloured files, newest last.
type Known = Vec<((BlobId, String), Arc<Colours>)>;

static FILES: Mutex<Known> = Mutex::new(Vec::new());

fn syntaxes() -> &'static SyntaxSet {
    static SET: OnceLock<SyntaxSet> = OnceLock::new();
    SET.get_or_init(two_face::syntax::extra_newlines)
}

/// The colours of a file; lines beyond the last are plain. Nothing for a file of unknown kind.
pub(crate) fn colours(path: &[u8], id: &BlobId, text: &[u8]) -> Arc<Colours> {
    let Some(syntax) = syntax(path, text).filter(|_| text.len() <= SIZE) else { return Arc::default() };
    let key = (id.clone(), syntax.name.clone());
    if let Some((_, known)) = FILES.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|(k, _)| *k == key) {
        return Arc::clone(known);
    }
    let done = Arc::new(colour(syntax, text));
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if files.len() >= KEPT {
        files.remove(0);
    }
    files.push((key, Arc::clone(&done)));
    done
}

/// The same, kept nowhere.
pub(crate) fn coloured(path: &[u8], text: &[u8]) -> Colours {
    syntax(path, text).filter(|_| text.len() <= SIZE).map(|syntax| colour(syntax, text)).unwrap_or_default()
}

fn syntax(path: &[u8], text: &[u8]) -> Option<&'static SyntaxReference> {
    let path = String::from_utf8_lossy(path);
    let name = path.rsplit('/').next().unwrap_or_default();
    let set = syntaxes();
    let first = text.split(|b| *b == b'\n').next().unwrap_or_default();
    set.find_syntax_by_extension(name)
        .or_else(|| set.find_syntax_by_extension(name.rsplit_once('.')?.1))
        .or_else(|| set.find_syntax_by_first_line(&String::from_utf8_lossy(&first[..first.len().min(200)])))
}

fn colour(syntax: &SyntaxReference, text: &[u8]) -> Colours {
    let started = Instant::now();
    let mut state = ParseState::new(syntax);
    let mut stack = ScopeStack::new();
    let mut classes = HashMap::new();
    let mut lines = Colours::new();
    for line in text.split_inclusive(|b| *b == b'\n') {
        if started.elapsed() > TIME {
            break;
        }
        if line.len() > LINE {
            lines.push(Vec::new());
            continue;
        }
        let line = String::from_utf8_lossy(line);
        let Ok(ops) = state.parse_line(&line, syntaxes()) else { break };
        let mut ranges = Vec::new();
        let (mut at, mut end) = (0, 0);
        for (to, op) in ops {
            // The parser counts bytes of this very line; a position inside a character would be its error, not ours to fall over.
            let Some(piece) = line.get(at..to) else { break };
            if !piece.is_empty() {
                end += u32::try_from(piece.chars().count()).unwrap_or(0);
                push(&mut ranges, end, class(&stack, &mut classes));
            }
            at = to;
            if stack.apply(&op).is_err() {
                return lines;
            }
        }
        let rest = line.get(at..).unwrap_or_default();
        if !rest.is_empty() {
            push(&mut ranges, end + u32::try_from(rest.chars().count()).unwrap_or(0), class(&stack, &mut classes));
        }
        lines.push(ranges);
    }
    lines
}

fn push(ranges: &mut Vec<(u32, Class)>, end: u32, class: Class) {
    match ranges.last_mut() {
        Some(last) if last.1 == class => last.0 = end,
        _ => ranges.push((end, class)),
    }
}

/// The class of the innermost scope that has one.
fn class(stack: &ScopeStack, known: &mut HashMap<Scope, Option<Class>>) -> Class {
    stack.as_slice().iter().rev().find_map(|s| *known.entry(*s).or_insert_with(|| by_scope(*s))).unwrap_or(Class::Text)
}

fn by_scope(scope: Scope) -> Option<Class> {
    // The first prefix that fits decides, so the narrower ones come first.
    const TABLE: [(&str, Class); 24] = [
        ("comment", Class::Com),
        ("punctuation.definition.comment", Class::Com),
        ("string", Class::Str),
        ("punctuation.definition.string", Class::Str),
        ("constant.character", Class::Str),
        ("constant", Class::Num),
        ("entity.name.function.macro", Class::Mac),
        ("entity.name.macro", Class::Mac),
        ("support.macro", Class::Mac),
        ("entity.name.function", Class::Fn),
        ("support.function", Class::Fn),
        ("variable.function", Class::Fn),
        ("entity.name.tag", Class::Kw),
        ("entity.other.attribute-name", Class::Mac),
        ("variable.annotation", Class::Mac),
        ("meta.annotation", Class::Mac),
        ("meta.preprocessor", Class::Mac),
        ("entity.name", Class::Ty),
        ("entity.other.inherited-class", Class::Ty),
        ("support.type", Class::Ty),
        ("support.class", Class::Ty),
        ("storage", Class::Kw),
        ("keyword.operator", Class::Text),
        ("keyword", Class::Kw),
    ];
    static SCOPES: OnceLock<Vec<(Scope, Class)>> = OnceLock::new();
    let table = SCOPES.get_or_init(|| TABLE.iter().filter_map(|(name, class)| Some((Scope::new(name).ok()?, *class))).collect());
    table.iter().find(|(prefix, _)| prefix.is_prefix_of(scope)).map(|(_, class)| *class)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn rust_is_coloured_by_what_things_are() {
        let id = BlobId::parse(&"a".repeat(40)).unwrap();
        let lines = colours(b"src/x.rs", &id, "fn é() -> u8 { 42 } // c\nlet s = \"x\";\n".as_bytes());
        let first = &lines[0];
        let at = |n: u32| first.iter().find(|(end, _)| n < *end).unwrap().1;
        assert_eq!(at(0), Class::Kw, "fn is a keyword: {first:?}");
        assert_eq!(at(3), Class::Fn, "a multi-byte name is a function: {first:?}");
        assert_eq!(at(15), Class::Num, "42 is a number: {first:?}");
        assert_eq!(at(21), Class::Com, "the rest is a comment: {first:?}");
        assert!(lines[1].iter().any(|r| r.1 == Class::Str), "a string is a string");
    }

    #[test]
    fn what_is_too_long_stays_plain() {
        let id = BlobId::parse(&"b".repeat(40)).unwrap();
        let long = format!("let a = \"{}\";\nlet b = 1;\n", "x".repeat(LINE));
        let lines = colours(b"x.rs", &id, long.as_bytes());
        assert!(lines[0].is_empty() && !lines[1].is_empty(), "only the long line is plain");
        assert!(colours(b"x.unknown-kind", &id, b"text").is_empty(), "an unknown kind is plain");
    }
}
