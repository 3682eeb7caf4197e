//! Requests of HTTP: which of them a rule or a credential means.

use crate::problem::quote;
use crate::read::{Notes, Table};
use std::fmt;

/// Longest path that is judged.
const LONGEST: usize = 8192;

/// What of a request is judged: its method and the plain form of its path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpRequest {
    method: String,
    path: String,
}

/// Why a request can't be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// No method of HTTP.
    #[error("the method is none of HTTP's")]
    Method,
    /// A path that servers read in more than one way.
    #[error(
        "the path can be read in more than one way (`..`, `//`, `\\`, `;`, an encoded slash or dot, or a character that no path has)"
    )]
    Path,
    /// A path that is too long.
    #[error("the path is longer than {LONGEST} bytes")]
    Long,
}

impl HttpRequest {
    /// Reads a request line's method and path, without query. Escapes of letters, digits, `-`, `_` and `~` are written out, since a
    /// server takes them for the same.
    pub fn new(method: &str, path: &str) -> Result<Self, BadRequest> {
        if method.is_empty() || method.len() > 32 || !method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
            return Err(BadRequest::Method);
        }
        if path.len() > LONGEST {
            return Err(BadRequest::Long);
        }
        if path == "*" && method == "OPTIONS" {
            return Ok(Self { method: method.to_owned(), path: path.to_owned() });
        }
        let path = plain(path).ok_or(BadRequest::Path)?;
        let rest = path.strip_prefix('/').ok_or(BadRequest::Path)?;
        let odd = |(i, segment): (usize, &str)| {
            // A final slash is an empty last segment.
            let last = i == rest.bytes().filter(|b| *b == b'/').count();
            segment == "." || segment == ".." || (segment.is_empty() && !last)
        };
        if rest.split('/').enumerate().any(odd) {
            return Err(BadRequest::Path);
        }
        Ok(Self { method: method.to_owned(), path })
    }

    /// Its method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Its path in plain form.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

fn plain(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(b) = rest.next() {
        match b {
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                let byte = u8::try_from(high * 16 + low).ok()?;
                match byte {
                    b'/' | b'\\' | b'.' | b'%' | 0..=0x1f | 0x7f => return None,
                    b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'~') => out.push(char::from(b)),
                    b => out.push_str(&format!("%{b:02X}")),
                }
            }
            // What a path may hold as it is. From `;` to the end of a segment some servers read parameters, and leave them out of the path.
            b if b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&b) => out.push(char::from(b)),
            _ => return None,
        }
    }
    Some(out)
}

/// A pattern of paths: `{name}` or `*` is one segment, a final `**` any number of them, all else stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(String);

impl PathPattern {
    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('/')?;
        let segments: Vec<&str> = rest.split('/').collect();
        let good = |(i, s): (usize, &&str)| match *s {
            "**" => i + 1 == segments.len(),
            "*" => true,
            "" => i + 1 == segments.len(),
            s if s.starts_with('{') && s.ends_with('}') => {
                s.len() > 2 && s[1..s.len() - 1].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            }
            s => !s.contains(['*', '{', '}']) && plain(s).as_deref() == Some(s) && s != "." && s != "..",
        };
        segments.iter().enumerate().all(good).then(|| Self(text.to_owned()))
    }

    /// Whether a path in plain form is meant.
    pub fn matches(&self, path: &str) -> bool {
        let (Some(pattern), Some(path)) = (self.0.strip_prefix('/'), path.strip_prefix('/')) else { return false };
        let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
        loop {
            match (pattern.next(), path.next()) {
                (None, None) => return true,
                (Some("**"), Some(_)) => return true,
                (Some(p), Some(s)) if p == s && !(p.starts_with('{') || p == "*") => {}
                (Some(p), Some(s)) if !s.is_empty() && (p == "*" || p.starts_with('{')) => {}
                _ => return false,
            }
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which requests are meant; all of them where neither is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requests {
    /// These methods.
    pub methods: Option<Vec<String>>,
    /// These paths.
    pub paths: Option<Vec<PathPattern>>,
}

impl Requests {
    /// Whether some requests of a host are not meant.
    pub fn narrow(&self) -> bool {
        self.methods.is_some() || self.paths.is_some()
    }

    /// Whether a request is meant.
    pub fn matches(&self, request: &HttpRequest) -> bool {
        self.methods.as_ref().is_none_or(|m| m.contains(&request.method))
            && self.paths.as_ref().is_none_or(|p| p.iter().any(|p| p.matches(&request.path)))
    }

    /// As in a policy's words: `GET, HEAD /repos/**`.
    pub(crate) fn words(&self) -> String {
        let methods = self.methods.as_ref().map_or_else(|| "any method".to_owned(), |m| m.join(", "));
        match &self.paths {
            None => methods,
            Some(paths) => {
                let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
                format!("{methods} {}", paths.join(", "))
            }
        }
    }
}

/// Reads `methods` and `paths`.
pub(crate) fn requests(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Requests {
    let mut out = Requests::default();
    if let Some(methods) = t.some_texts(notes, "methods") {
        for m in methods.value.iter().filter(|m| HttpRequest::new(&m.value, "/").is_err()) {
            notes.problem(&m.span, format!("{} is no HTTP method", quote(&m.value)), "upper case, as in \"GET\"");
        }
        out.methods = Some(methods.value.into_iter().map(|m| m.value).collect());
    }
    if let Some(paths) = t.some_texts(notes, "paths") {
        let mut list = Vec::new();
        for p in &paths.value {
            match PathPattern::parse(&p.value) {
                Some(pattern) => list.push(pattern),
                None => notes.problem(
                    &p.span,
                    format!("{} is no pattern of paths", quote(&p.value)),
                    "as in \"/repos/{owner}/{repo}/**\": it begins with `/`; `*` or `{name}` is one segment, a final `**` the rest",
                ),
            }
        }
        out.paths = Some(list);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_that_two_servers_read_differently_is_not_judged() {
        for odd in [
            "",
            "a",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/./b",
            "/..",
            "/a/%2e%2e/b",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a b",
            "/a;x",
            "/a/..;/b",
            "/a%00b",
            "/%",
            "/%4",
            "/%zz",
            "/a%252fb",
            "/a#b",
            "/a?b",
            "/\u{e9}",
            "*",
        ] {
            assert!(HttpRequest::new("GET", odd).is_err(), "{odd:?}");
        }
        for (given, want) in [
            ("/", "/"),
            ("/a/", "/a/"),
            ("/%61%2D/b%20c%c3%a9", "/a-/b%20c%C3%A9"),
            ("/a.b/..c/:x@y,z=1", "/a.b/..c/:x@y,z=1"),
            ("/a%3bx", "/a%3Bx"),
        ] {
            assert_eq!(HttpRequest::new("GET", given).unwrap().path(), want);
        }
        for odd in ["", "get", "GET ", "G\tET", "GET/"] {
            assert!(HttpRequest::new(odd, "/").is_err(), "{odd:?}");
        }
        assert!(HttpRequest::new("OPTIONS", "*").is_ok());
    }

    #[test]
    fn a_pattern_means_whole_segments() {
        let m = |pattern: &str, path: &str| PathPattern::parse(pattern).unwrap().matches(path);
        assert!(m("/v1/messages", "/v1/messages") && m("/v1/**", "/v1/a/b") && m("/repos/{owner}/{repo}/**", "/repos/a/b/c"));
        assert!(m("/**", "/") && m("/a/", "/a/") && m("/*/x", "/y/x"));
        assert!(!m("/v1/messages", "/v1/messages/") && !m("/v1/messages", "/v1/messagesx") && !m("/v1/**", "/v1"));
        assert!(!m("/repos/{owner}/{repo}/**", "/repos/a/b") && !m("/*/x", "//x") && !m("/a", "/A"));
        for bad in ["", "a", "/**/a", "/a*", "/{a", "/{}", "/a//b", "/../a", "/a%2fb", "/a b", "/{a}b"] {
            assert!(PathPattern::parse(bad).is_none(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_plain_path_is_its_own_plain_form(path in "\\PC{0,40}") {
            if let Ok(request) = HttpRequest::new("GET", &path) {
                let again = HttpRequest::new("GET", request.path()).unwrap();
                prop_assert_eq!(again, request);
            }
        }
    }
}
