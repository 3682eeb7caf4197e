//! Settings files with placeholders in place of their values.

/// A file of more bytes becomes an empty one.
const LARGEST: usize = 1 << 20;
/// Endings of files that are made to be read by everybody.
const EXAMPLES: [&[u8]; 5] = [b".example", b".sample", b".template", b".dist", b".defaults"];

/// Whether a path is that of an example, which nothing masks.
pub(crate) fn is_example(path: &[u8]) -> bool {
    EXAMPLES.iter().any(|end| path.ends_with(end))
}

/// What tools find instead of a settings file: its keys in their order, with a placeholder each in the quotes that the value
/// had; no comments. Empty where the file is of no form that is known, since then anything in it may be a value.
pub(crate) fn placeholders(bytes: &[u8]) -> Vec<u8> {
    let Some(settings) = settings(bytes) else { return Vec::new() };
    let line = |s: &Setting<'_>| {
        let (export, key, quote) = (if s.export { "export " } else { "" }, s.key, s.quote.map_or("", Quote::text));
        format!("{export}{key}={quote}placeholder-{key}{quote}\n")
    };
    settings.iter().map(line).collect::<String>().into_bytes()
}

/// Names of the settings whose values look like secrets. A file of another form counts as one value.
pub(crate) fn secrets(bytes: &[u8]) -> Vec<String> {
    match settings(bytes) {
        Some(settings) => settings.iter().filter(|s| stores::is_secret(s.key, s.value)).map(|s| s.key.to_owned()).collect(),
        None if stores::holds_secret(bytes) => vec!["a token or a login".to_owned()],
        None => Vec::new(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    Single,
    Double,
    Back,
}

impl Quote {
    fn of(value: &str) -> Option<Self> {
        match value.as_bytes().first()? {
            b'\'' => Some(Self::Single),
            b'"' => Some(Self::Double),
            b'`' => Some(Self::Back),
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Single => "'",
            Self::Double => "\"",
            Self::Back => "`",
        }
    }
}

struct Setting<'a> {
    export: bool,
    key: &'a str,
    quote: Option<Quote>,
    value: &'a str,
}

/// `KEY=value` lines, with or without `export`, values bare or in quotes over any number of lines; `None` where the file holds
/// anything else.
fn settings(bytes: &[u8]) -> Option<Vec<Setting<'_>>> {
    if bytes.len() > LARGEST {
        return None;
    }
    let mut rest = std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)).ok()?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            rest = after;
            continue;
        }
        let (export, text) = match text.strip_prefix("export ").or_else(|| text.strip_prefix("export\t")) {
            Some(text) => (true, text.trim_start()),
            None => (false, text),
        };
        let (key, value) = text.split_once('=')?;
        let key = key.trim_end();
        if !is_name(key) {
            return None;
        }
        let value = value.trim_start();
        // A value in quotes ends at its closing quote, lines further down as it may be; without one it ends with the line.
        let quoted = Quote::of(value).and_then(|quote| {
            let start = value.as_ptr() as usize - rest.as_ptr() as usize + 1;
            let end = start + closing(&rest[start..], quote)?;
            let after = rest[end + 1..].split_once('\n').map_or("", |(_, after)| after);
            Some((quote, &rest[start..end], after))
        });
        match quoted {
            Some((quote, value, after)) => {
                found.push(Setting { export, key, quote: Some(quote), value });
                rest = after;
            }
            None => {
                found.push(Setting { export, key, quote: None, value });
                rest = after;
            }
        }
    }
    Some(found)
}

/// Where the closing quote is.
fn closing(text: &str, quote: Quote) -> Option<usize> {
    let mark = quote.text().as_bytes()[0];
    let mut escaped = false;
    text.bytes().position(|b| {
        let closes = b == mark && !escaped;
        escaped = b == b'\\' && !escaped && quote != Quote::Single;
        closes
    })
}

/// Whether a word is the name of a setting, and not the beginning of encoded data that ends in `=`.
fn is_name(key: &str) -> bool {
    let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    let mixed = |has: fn(&char) -> bool| key.chars().any(|c| has(&c));
    let encoded =
        mixed(char::is_ascii_lowercase) && mixed(char::is_ascii_uppercase) && mixed(char::is_ascii_digit) && !key.contains('_');
    let first = key.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    plain && first && key.len() <= 100 && !encoded && !stores::is_secret("", key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        String::from_utf8(placeholders(text.as_bytes())).unwrap_or_default()
    }

    #[test]
    fn keys_and_quotes_stay_and_values_go() {
        let text = "\u{feff}# the database\nDB_URL=postgres://u:p@h/d # inline\r\n\nexport API_KEY=\"abc\"\nA.b-c = 'it''s'\nPLAIN=\n\
                    PEM=\"-----BEGIN\nline two\nline \\\" three\n-----END\" # after\nLAST='x'";
        assert_eq!(
            masked(text),
            "DB_URL=placeholder-DB_URL\nexport API_KEY=\"placeholder-API_KEY\"\nA.b-c='placeholder-A.b-c'\nPLAIN=placeholder-PLAIN\n\
             PEM=\"placeholder-PEM\"\nLAST='placeholder-LAST'\n"
        );
    }

    #[test]
    fn p2_a_form_that_is_not_known_leaves_nothing() {
        for text in [
            "{\"key\": \"s3cret\"}",
            "key: s3cret\n",
            "A=1\ns3cret on a line of its own\n",
            "-----BEGIN PRIVATE KEY-----\nMIIEvQ==\n",
            "c2VjcmV0MTIz==\n",
            "9f86d081884c7d659a2feaa0c55ad015=",
            "A=\"never closed\nB=s3cret words\nand more",
            "\u{0}A=1",
        ] {
            assert_eq!(masked(text), "", "{text:?}");
        }
        assert_eq!(placeholders(b"A=\xff"), b"", "what is no text is nothing");
        assert_eq!(placeholders(format!("A={}", "x".repeat(LARGEST)).as_bytes()), b"");
        assert_eq!(masked("A=\"never closed\nB=1\n"), "A=placeholder-A\nB=placeholder-B\n");
    }

    #[test]
    fn what_looks_like_a_secret_is_named_by_its_key() {
        assert_eq!(secrets(b"PORT=3000\nDB_PASSWORD='correct horse 7'\nTOKEN=\n"), ["DB_PASSWORD"]);
        assert_eq!(secrets(b"PORT=3000\nAPI=https://api.test\n"), [""; 0]);
        assert_eq!(secrets(b"{\"url\": \"https://u:p@h.test\"}").len(), 1);
        assert!(is_example(b"a/.env.example") && !is_example(b".env.test"));
    }
}
