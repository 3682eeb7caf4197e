//! How a credential is sent.

use crate::host::{Destination, Host, Target};
use crate::problem::quote;
use crate::read::{At, Notes, Table};
use std::net::SocketAddr;

/// How a credential is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// As the value of this header, lower case.
    Header(String),
    /// As `Authorization: Bearer …`.
    Bearer,
    /// As `Authorization: Basic …`, with this user.
    Basic(String),
    /// As this parameter of the query.
    Query(String),
    /// Signed by AWS's Signature Version 4. It is `ID:SECRET`, `ID:SECRET:TOKEN` or what a `credential_process` prints.
    SigV4(Scope),
    /// As `Authorization: Bearer …` with what a token endpoint gives for it (RFC 6749, section 6).
    OAuth(TokenEndpoint),
}

/// What a signature is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// As in `eu-west-1`.
    pub region: String,
    /// As in `s3`.
    pub service: String,
}

/// Where a refresh token is changed for an access token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEndpoint {
    /// The server; spoken to by TLS alone.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
    /// The client's public name, where the credential itself holds none.
    pub client: Option<String>,
    /// Where its name leads, where not to the public internet.
    pub address: Option<SocketAddr>,
}

const WAYS: [&str; 6] = ["header", "bearer", "basic", "query", "sigv4", "oauth"];

impl Attach {
    /// Whether the credential may be a JSON object of several lines.
    pub fn takes_json(&self) -> bool {
        matches!(self, Self::SigV4(_) | Self::OAuth(_))
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Header(name) => format!("as the header {name}"),
            Self::Bearer => "as a bearer token".to_owned(),
            Self::Basic(user) => format!("as the password of {}", crate::explain::plain(user)),
            Self::Query(name) => format!("as the parameter {name}"),
            Self::SigV4(scope) => format!("as AWS's signature for {} in {}", scope.service, scope.region),
            Self::OAuth(at) => format!("as a bearer token that {} gives for it", at.host),
        }
    }

    /// The line that reads back as this.
    pub(crate) fn as_toml(&self) -> String {
        let text = |s: &str| toml::Value::String(s.to_owned()).to_string();
        match self {
            Self::Header(name) => format!("header = {}", text(name)),
            Self::Bearer => "bearer = true".to_owned(),
            Self::Basic(user) => format!("basic = {}", text(user)),
            Self::Query(name) => format!("query = {}", text(name)),
            Self::SigV4(Scope { region, service }) => format!("sigv4 = {}", text(&format!("{region}/{service}"))),
            Self::OAuth(at) => {
                let port = if at.port == 443 { String::new() } else { format!(":{}", at.port) };
                let client = at.client.as_deref().map_or_else(String::new, |c| format!(", client = {}", text(c)));
                let address = at.address.map_or_else(String::new, |a| format!(", address = {}", text(&a.to_string())));
                format!("oauth = {{ token = {}{client}{address} }}", text(&format!("https://{}{port}{}", at.host, at.path)))
            }
        }
    }
}

/// Reads the one way that a credential's table names.
pub(crate) fn attach(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    let written = WAYS.iter().filter(|k| t.value(k).is_some()).count();
    let mut ways = [header(t, notes), bearer(t, notes), basic(t, notes), query(t, notes), sigv4(t, notes), oauth(t, notes)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    match ways.len() {
        1 if written == 1 => ways.pop(),
        // Said already.
        0 if written == 1 => None,
        _ => {
            let message = format!("`{}` needs exactly one of {}", t.path, WAYS.join(", "));
            notes.problem(&t.span, message, "as in header = \"x-api-key\" or bearer = true");
            None
        }
    }
}

fn header(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    const NOT: [&str; 10] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "trailer",
        "cookie",
        "proxy-authorization",
        "expect",
    ];
    let At { value, span } = t.text(notes, "header")?;
    let name = value.to_ascii_lowercase();
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') || NOT.contains(&name.as_str()) {
        notes.problem(&span, format!("{} is no header of a credential", quote(&value)), "as in \"x-api-key\"");
    }
    Some(Attach::Header(name))
}

fn bearer(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    t.flag(notes, "bearer").is_some_and(|f| f.value).then_some(Attach::Bearer)
}

fn basic(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    let At { value, span } = t.text(notes, "basic")?;
    if value.is_empty() || value.contains(':') || value.chars().any(char::is_control) {
        notes.problem(&span, format!("{} is no user's name", quote(&value)), "without a colon; the secret is the password");
    }
    Some(Attach::Basic(value))
}

fn query(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    let At { value, span } = t.text(notes, "query")?;
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        notes.problem(&span, format!("{} is no parameter's name", quote(&value)), "as in \"key\"");
    }
    Some(Attach::Query(value))
}

fn sigv4(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    let At { value, span } = t.text(notes, "sigv4")?;
    let plain =
        |s: &&str| !s.is_empty() && s.len() <= 64 && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let found = value.split_once('/').filter(|(region, service)| plain(region) && plain(service));
    let Some((region, service)) = found else {
        notes.problem(&span, format!("{} is no region and service", quote(&value)), "as in \"eu-west-1/s3\"");
        return None;
    };
    Some(Attach::SigV4(Scope { region: region.to_owned(), service: service.to_owned() }))
}

fn oauth(t: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Attach> {
    const HINT: &str = "as in { token = \"https://auth.example.org/token\", client = \"my-tool\" }";
    let mut table = t.table(notes, "oauth")?;
    let (span, path) = (table.span.clone(), table.path.clone());
    let token = table.text(notes, "token");
    let client = table.text(notes, "client");
    let address = table.text(notes, "address");
    table.end(notes);
    let Some(At { value, span }) = token else {
        notes.problem(&span, format!("`{path}.token` is missing"), HINT);
        return None;
    };
    let found = value.strip_prefix("https://").map(|rest| rest.split_at(rest.find('/').unwrap_or(rest.len())));
    let found = found.and_then(|(host, path)| {
        let with_port = if host.contains(':') { host.to_owned() } else { format!("{host}:443") };
        let target = Target::parse(&with_port).ok()?;
        let plain = path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && !b"?#\"\\".contains(&b));
        match target.to {
            Destination::Name(host) if plain && !host.is_localhost() => Some((host, target.port, path.to_owned())),
            Destination::Name(_) | Destination::Address(_) => None,
        }
    });
    let Some((host, port, path)) = found else {
        notes.problem(&span, format!("{} is no token endpoint", quote(&value)), HINT);
        return None;
    };
    if let Some(At { value, span }) = client.as_ref().filter(|c| c.value.is_empty() || c.value.chars().any(model::path::hides)) {
        notes.problem(span, format!("{} is no client's name", quote(value)), HINT);
        return None;
    }
    let address = match address {
        None => None,
        Some(at) => Some(crate::network::pinned(&at, notes)?),
    };
    Some(Attach::OAuth(TokenEndpoint { host, port, path, client: client.map(|c| c.value), address }))
}
