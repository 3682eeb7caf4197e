//! Patterns of paths inside a repository, as a policy names ignored files.

/// A pattern: a name stands for it in every directory, one with a slash begins at the top. `*` is any run of characters of one
/// name, `?` any one of them. A leading `!` takes out what other patterns name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    except: bool,
    parts: Vec<String>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Why it can be none, in words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.chars().any(crate::path::hides) {
            return Err("it holds a control or hiding character");
        }
        let (except, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if text.starts_with('/') || text.starts_with('~') {
            return Err("it names a place inside the repository, from its top");
        }
        let parts: Vec<String> = text.split('/').map(str::to_owned).collect();
        if parts.iter().any(|p| p.is_empty() || p == "." || p == "..") {
            return Err("it holds an empty component, `.` or `..`");
        }
        if parts.iter().any(|p| p.eq_ignore_ascii_case(".git")) {
            return Err("git's own directory is made by Airlock");
        }
        if parts.iter().any(|p| p.contains("**")) {
            return Err("`**` is not known here: a name without a slash stands for it in every directory");
        }
        Ok(Self { except, parts })
    }

    /// Whether it takes out instead of naming.
    pub fn excepts(&self) -> bool {
        self.except
    }

    /// Whether this is the pattern of that path (relative to the top, without a slash at either end).
    pub fn matches(&self, path: &[u8]) -> bool {
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        match self.parts.as_slice() {
            [name] => parts.last().is_some_and(|last| fits(name.as_bytes(), last)),
            all => all.len() == parts.len() && all.iter().zip(&parts).all(|(p, part)| fits(p.as_bytes(), part)),
        }
    }

    /// Its components, where it begins at the top.
    pub fn from_top(&self) -> Option<&[String]> {
        (self.parts.len() > 1).then_some(self.parts.as_slice())
    }
}

/// Whether a list of patterns names a path: some pattern does, and none takes it out.
pub fn named_by(patterns: &[Pattern], path: &[u8]) -> bool {
    patterns.iter().any(|p| !p.except && p.matches(path)) && !patterns.iter().any(|p| p.except && p.matches(path))
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // Goes back to the last `*` alone: linear in both for each star.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| *c == b'?' || *c == name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((after, at)) = star {
            star = Some((after, at + 1));
            (p, n) = (after, at + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_counts_everywhere_and_a_path_from_the_top() {
        let m = |pattern: &str, path: &str| Pattern::parse(pattern).unwrap().matches(path.as_bytes());
        assert!(m(".env", ".env") && m(".env", "a/b/.env") && !m(".env", "a/.env/b") && !m(".env", ".env.local"));
        assert!(m(".env.*", ".env.local") && m(".env.*", "a/.env.a.b") && !m(".env.*", ".env"));
        assert!(m("a/*/c", "a/b/c") && !m("a/*/c", "x/a/b/c") && !m("a/*/c", "a/b/b/c"));
        assert!(m("*a*b", "xxaxxab") && !m("*a*b", "xxaxxabc") && m("??", "ab") && !m("??", "a"));
        assert!(Pattern::parse("*").unwrap().matches(b"a\xff\nb"));
    }

    #[test]
    fn one_exception_takes_out() {
        let list: Vec<Pattern> = [".env", ".env.*", "!config/.env"].iter().map(|p| Pattern::parse(p).unwrap()).collect();
        assert!(named_by(&list, b".env") && named_by(&list, b"a/.env.x") && !named_by(&list, b"config/.env"));
        assert!(!named_by(&list[2..], b"x"), "an exception alone names nothing");
    }

    #[test]
    fn what_leads_elsewhere_is_no_pattern() {
        for bad in ["", "/etc", "../x", "a//b", "a/./b", ".git", "a/.GIT/x", "~/x", "a\nb", "**/x", "!", "!/x"] {
            assert!(Pattern::parse(bad).is_err(), "{bad:?}");
        }
    }
}
