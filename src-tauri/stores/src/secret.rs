//! Whether text holds something that opens a door: a guess that would rather say yes.

/// How known tokens begin, and how many letters and digits follow at least.
const TOKENS: [(&[u8], usize); 16] = [
    (b"ghp_", 20),
    (b"gho_", 20),
    (b"ghs_", 20),
    (b"github_pat_", 20),
    (b"glpat-", 16),
    (b"npm_", 30),
    (b"pypi-AgE", 20),
    (b"AKIA", 16),
    (b"ASIA", 16),
    (b"xoxb-", 10),
    (b"xoxp-", 10),
    (b"sk-", 20),
    (b"sk_live_", 10),
    (b"AIza", 30),
    (b"eyJhbGciOi", 20),
    (b"dckr_pat_", 16),
];

/// Words before a value that is a credential.
const BEFORE: [&[u8]; 4] = [b"Bearer ", b"Basic ", b"bearer ", b"basic "];

/// Whether bytes hold a token of a known form, a private key, a value of an `Authorization` header or a URL with a name or
/// password in it.
pub fn holds_secret(bytes: &[u8]) -> bool {
    let has = |needle: &[u8]| places(bytes, needle).next().is_some();
    if has(b"PRIVATE KEY-----") || has(b"_authToken") || has(b"_password") {
        return true;
    }
    let run = |at: usize| bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || b"-_+/=.".contains(b)).count();
    let token = |(start, length): &(&[u8], usize)| {
        places(bytes, start).any(|at| {
            let fresh = at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
            fresh && run(at + start.len()) >= *length
        })
    };
    TOKENS.iter().any(token)
        || BEFORE.iter().any(|word| places(bytes, word).any(|at| run(at + word.len()) >= 12))
        || places(bytes, b"://").any(|at| names_somebody(&bytes[at + 3..]))
}

/// Whether what follows `://` has a name or password before its host. `git@` alone opens nothing.
fn names_somebody(rest: &[u8]) -> bool {
    let end = rest.iter().take(512).position(|b| b"/?#\"'\\ \t\r\n<>`,;()".contains(b) || !b.is_ascii() || *b == 0);
    let authority = &rest[..end.unwrap_or(rest.len().min(512))];
    authority.iter().rposition(|b| *b == b'@').is_some_and(|at| at > 0 && &authority[..at] != b"git")
}

/// Whether a setting of this name and value is one that nobody should read: a value of a known secret form, or a name that says
/// so with a value that is neither empty, a stand-in, nor a plain word.
pub fn is_secret(key: &str, value: &str) -> bool {
    if holds_secret(value.as_bytes()) {
        return true;
    }
    let value = value.trim();
    let key = key.to_ascii_uppercase();
    let named =
        ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "PRIVATE", "APIKEY", "API_KEY", "ACCESS_KEY"]
            .iter()
            .any(|word| key.contains(word))
            || key.ends_with("_KEY")
            || key.ends_with("_PAT")
            || key == "KEY";
    if named { !is_stand_in(value) } else { is_random(value) }
}

/// Values that stand where a secret goes: empty, a reference, a plain word or sentence of lower-case words, a small number.
fn is_stand_in(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let filler =
        ["example", "placeholder", "changeme", "change-me", "change_me", "your", "xxx", "todo", "dummy", "secret", "password"];
    value.len() < 4
        || (value.len() < 8 && value.chars().all(|c| c.is_ascii_digit()))
        || value.starts_with(['$', '<', '{'])
        || filler.iter().any(|word| lower.contains(word))
        || matches!(lower.as_str(), "true" | "false" | "none" | "null" | "test" | "admin" | "root" | "postgres" | "local" | "dev")
        || (value.len() < 16 && value.chars().all(|c| c.is_ascii_lowercase() || " -_".contains(c)))
}

/// Long, without spaces, of letters and digits in a mixture that no word or path has.
fn is_random(value: &str) -> bool {
    let longest = value.split(|c: char| !c.is_ascii_alphanumeric() && !"+=_-".contains(c)).max_by_key(|p| p.len()).unwrap_or("");
    let digits = longest.chars().filter(char::is_ascii_digit).count();
    let letters = longest.chars().filter(char::is_ascii_alphabetic).count();
    // Changes between digit and letter: a name with a date or a version in it has few.
    let kinds: Vec<bool> = longest.chars().map(|c| c.is_ascii_digit()).collect();
    let changes = kinds.windows(2).filter(|w| w[0] != w[1]).count();
    longest.len() >= 24 && digits >= 3 && letters >= 3 && changes >= 6
}

fn places<'a>(bytes: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = needle[0];
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(at) = bytes[from..].iter().position(|b| *b == first) {
            let at = from + at;
            from = at + 1;
            if bytes[at..].starts_with(needle) {
                return Some(at);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_logins_are_seen() {
        for text in [
            "//registry.test/:_authToken=abc",
            "url https://jo:pw@registry.test/x",
            "https://0123456789abcdef@git.test/a.git",
            "vary\0Authorization\0Basic am86cHctb2YtdGhlLXBlcnNvbg==",
            "x ghp_0123456789abcdefghijABCDEFGHIJ y",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "AWS=AKIAIOSFODNN7EXAMPLE",
        ] {
            assert!(holds_secret(text.as_bytes()), "{text}");
        }
        for text in [
            "https://registry.test/a/-/a-1.0.0.tgz",
            "ssh://git@git.test/a/b.git",
            "mail jo@example.org about https://a.test",
            "{\"name\":\"serde\",\"vers\":\"1.0.0\",\"cksum\":\"0123456789abcdef0123456789abcdef0123456789abcdef\"}",
            "task-12 disk-usage vary: Authorization",
            "",
        ] {
            assert!(!holds_secret(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_settings_value_is_judged_by_its_name_and_form() {
        for (key, value) in [
            ("API_KEY", "a8f5f167f44f4964e6c998dee827110c"),
            ("DB_PASSWORD", "hunter2hunter2"),
            ("DATABASE_URL", "postgres://app:s3cr3t@db.intern/app"),
            ("WHATEVER", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"),
            ("STRIPE", "sk_live_0123456789abcdef"),
        ] {
            assert!(is_secret(key, value), "{key}={value}");
        }
        for (key, value) in [
            ("API_KEY", ""),
            ("API_KEY", "your-api-key-here"),
            ("SECRET_KEY", "changeme"),
            ("DB_PASSWORD", "postgres"),
            ("TOKEN_TTL", "3600"),
            ("DATABASE_URL", "postgres://localhost:5432/app_development"),
            ("REACT_APP_API", "https://api.example.org/v2/things"),
            ("NODE_ENV", "development"),
            ("JWT_SECRET", "${JWT_SECRET}"),
            ("IMAGE", "registry.test/app:2024-01-01"),
        ] {
            assert!(!is_secret(key, value), "{key}={value}");
        }
    }
}
