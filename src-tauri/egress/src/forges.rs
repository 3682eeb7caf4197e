//! Requests that write on a forge: no policy and no answer lets one through here, as a push is judged by its refs.
//!
//! The table is data (`policies/forges.json`). Of GraphQL, where everything has one address, the body says what is done.

use apollo_parser::Parser;
use apollo_parser::cst::{CstNode as _, Definition, OperationDefinition, Selection, SelectionSet};
use model::decision::Ruling;
use policy::{Destination, Host, HttpRequest, PathPattern, Target};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// Deepest nesting and most words of a document.
const DEPTH: usize = 200;
const WORDS: usize = 50_000;
/// Documents that come in one request.
const BATCH: usize = 50;

#[derive(Deserialize)]
struct Table {
    forges: Vec<Forge>,
    graphql: GraphQl,
    stores: Vec<String>,
}

#[derive(Deserialize)]
struct Forge {
    name: String,
    prefixes: Vec<String>,
    /// Names at which the routes have no prefix.
    #[serde(default)]
    hosts: Vec<String>,
    /// Methods and path.
    routes: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct GraphQl {
    /// Labels of a forge's name.
    hosts: Vec<String>,
    /// Paths that are a forge's, whatever its name.
    paths: Vec<String>,
    /// Mutations that write no refs, contents or merges.
    asked: BTreeSet<String>,
}

struct Route {
    forge: String,
    /// The one name that it is at; any where there is none.
    host: Option<String>,
    methods: String,
    path: PathPattern,
}

struct Known {
    routes: Vec<Route>,
    graphql: GraphQl,
    stores: Vec<String>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    // Built in, and read by a test: it can't be otherwise.
    let table: Table =
        serde_json::from_str(include_str!("../../../policies/forges.json")).unwrap_or_else(|e| unreachable!("{e}"));
    let mut routes = Vec::new();
    for forge in table.forges {
        let anywhere = forge.prefixes.iter().map(|prefix| (prefix.clone(), None));
        let named = forge.hosts.iter().map(|host| (String::new(), Some(host.clone())));
        for (prefix, host) in anywhere.chain(named) {
            for (methods, path) in &forge.routes {
                let path = format!("{prefix}{path}").to_ascii_lowercase().replace("{}", "*");
                let path = PathPattern::parse(&path).unwrap_or_else(|| unreachable!("{path} is no pattern"));
                routes.push(Route { forge: forge.name.clone(), host: host.clone(), methods: methods.clone(), path });
            }
        }
    }
    Known { routes, graphql: table.graphql, stores: table.stores }
});

/// Whose route a request takes that writes refs, contents or merges, or makes a lasting way to do so.
pub(crate) fn writes(target: &Target, request: &HttpRequest) -> Option<&'static str> {
    // Servers pass over case and a final slash.
    let path = request.path().trim_end_matches('/').to_ascii_lowercase();
    let host = name(target);
    let takes = |route: &&Route| {
        route.methods.split(' ').any(|m| m == request.method())
            && route.host.as_ref().is_none_or(|h| host.as_deref() == Some(h))
            && route.path.matches(&path)
    };
    KNOWN.routes.iter().find(takes).map(|route| route.forge.as_str())
}

fn name(target: &Target) -> Option<String> {
    match &target.to {
        Destination::Name(host) => Some(host.as_str().to_owned()),
        Destination::Address(_) => None,
    }
}

/// Whether what is sent to a host can lie there for others to fetch.
fn stores(host: &Host) -> bool {
    let host = host.as_str();
    KNOWN.stores.iter().any(|known| match known.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => host == known,
    })
}

/// What asks, with a word on a host that stores.
pub(crate) fn marked(ruling: &Ruling, target: &Target) -> Ruling {
    let mark = match &target.to {
        Destination::Name(host) if stores(host) => "what is sent there can lie there for others to fetch",
        Destination::Name(_) | Destination::Address(_) => return ruling.clone(),
    };
    let between = if ruling.reason.is_empty() { "" } else { "; " };
    Ruling { reason: format!("{}{between}{mark}", ruling.reason), ..ruling.clone() }
}

/// Whether a request is for a forge's GraphQL.
pub(crate) fn is_graphql(target: &Target, request: &HttpRequest) -> bool {
    let path = request.path().trim_end_matches('/').to_ascii_lowercase();
    let named = || {
        let labels = name(target).unwrap_or_default();
        labels.split('.').any(|label| KNOWN.graphql.hosts.iter().any(|h| label.split('-').any(|part| part == h)))
    };
    KNOWN.graphql.paths.contains(&path) || (path.ends_with("/graphql") && named())
}

/// What documents of GraphQL do.
#[derive(Debug, PartialEq, Eq)]
pub enum Does {
    /// They only read.
    Reads,
    /// They change what is said about code, by these mutations: that is asked about.
    Asks(Vec<String>),
    /// They write refs, contents or merges, or nobody knows what; in words.
    Writes(String),
}

/// Reads the body and the query of a request for GraphQL.
pub fn does(body: &[u8], query: Option<&str>, json: bool) -> Does {
    let unknown = |why: &str| Does::Writes(format!("what it does can't be told: {why}"));
    let mut texts = Vec::new();
    for (name, value) in crate::doors::parameters(query) {
        if name.trim().eq_ignore_ascii_case("query") {
            texts.push(value);
        }
    }
    if !body.is_empty() {
        if json {
            match serde_json::from_slice::<OneOrMany>(body) {
                Ok(OneOrMany::One(one)) => texts.push(one.0),
                Ok(OneOrMany::Many(many)) if many.len() <= BATCH => texts.extend(many.into_iter().map(|one| one.0)),
                Ok(OneOrMany::Many(_)) => return unknown("too many documents at once"),
                Err(_) => return unknown("its body names no document, or more than one"),
            }
        } else {
            match std::str::from_utf8(body) {
                Ok(text) => texts.push(text.to_owned()),
                Err(_) => return unknown("its body is no text"),
            }
        }
    }
    if texts.is_empty() {
        return unknown("it brings no document");
    }
    let mut asked = BTreeSet::new();
    for text in texts {
        match mutations(&text) {
            Ok(found) => asked.extend(found),
            Err(why) => return unknown(why),
        }
    }
    if let Some(other) = asked.iter().find(|m| !KNOWN.graphql.asked.contains(*m)) {
        return Does::Writes(format!("the mutation {other} writes, or is not known"));
    }
    if asked.is_empty() { Does::Reads } else { Does::Asks(asked.into_iter().collect()) }
}

/// A body, or several. What stands beside the document can't change what it does, but for a stored one in its place.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Document),
    Many(Vec<Document>),
}

/// The one document of an object: none where two servers could read another.
struct Document(String);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let fields = Fields::deserialize(from)?.0;
        let mut found = None;
        for (name, value) in fields {
            if name.to_lowercase() == "query" {
                match value {
                    serde_json::Value::String(text) if name == "query" && found.is_none() => found = Some(text),
                    _ => return Err(D::Error::custom("more than one document")),
                }
            }
        }
        found.map(Self).ok_or_else(|| D::Error::custom("no document"))
    }
}

/// All fields of an object, those of one name too.
struct Fields(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> serde::de::Visitor<'de> for All {
            type Value = Fields;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = map.next_entry()? {
                    all.push(field);
                }
                Ok(Fields(all))
            }
        }
        from.deserialize_map(All)
    }
}

/// The mutations of a document, of all its operations: which of them is meant is the server's to choose.
fn mutations(text: &str) -> Result<BTreeSet<String>, &'static str> {
    let parsed = Parser::new(text).recursion_limit(DEPTH).token_limit(WORDS).parse();
    if parsed.errors().next().is_some() {
        return Err("it is no GraphQL that is read here");
    }
    let mut fragments = HashMap::new();
    let mut sets = Vec::new();
    for definition in parsed.document().definitions() {
        match definition {
            Definition::OperationDefinition(operation) if is_mutation(&operation) => {
                sets.push(operation.selection_set().ok_or("a mutation selects nothing")?);
            }
            Definition::OperationDefinition(_) => {}
            Definition::FragmentDefinition(fragment) => {
                let name = fragment.fragment_name().and_then(|n| n.name()).ok_or("a fragment has no name")?;
                let set = fragment.selection_set().ok_or("a fragment selects nothing")?;
                if fragments.insert(name.text().to_string(), set).is_some() {
                    return Err("two fragments have one name");
                }
            }
            _ => return Err("it defines something else than operations"),
        }
    }
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    while let Some(set) = sets.pop() {
        collect(&set, &fragments, &mut sets, &mut seen, &mut found)?;
    }
    Ok(found)
}

fn is_mutation(operation: &OperationDefinition) -> bool {
    // One without a word is a query.
    operation.operation_type().is_some_and(|t| t.mutation_token().is_some())
}

fn collect(
    set: &SelectionSet,
    fragments: &HashMap<String, SelectionSet>,
    sets: &mut Vec<SelectionSet>,
    seen: &mut BTreeSet<String>,
    found: &mut BTreeSet<String>,
) -> Result<(), &'static str> {
    for selection in set.selections() {
        match selection {
            Selection::Field(field) => {
                let name = field.name().ok_or("a field has no name")?.text().to_string();
                if name != "__typename" {
                    found.insert(name);
                }
            }
            Selection::InlineFragment(inline) => sets.push(inline.selection_set().ok_or("a fragment selects nothing")?),
            Selection::FragmentSpread(spread) => {
                let name = spread.fragment_name().and_then(|n| n.name()).ok_or("a fragment has no name")?.text().to_string();
                let fragment = fragments.get(&name).ok_or("a fragment is not there")?;
                if seen.insert(name) {
                    sets.push(SelectionSet::cast(fragment.syntax().clone()).ok_or("a fragment selects nothing")?);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn writer(target: &str, method: &str, path: &str) -> Option<&'static str> {
        writes(&Target::parse(target).unwrap(), &HttpRequest::new(method, path).unwrap())
    }

    #[test]
    fn p7_a_write_is_known_on_every_forge_by_its_route() {
        for (host, method, path, forge) in [
            ("api.github.com:443", "PUT", "/repos/a/b/contents/src/main.rs", "GitHub"),
            ("api.github.com:443", "POST", "/repos/a/b/git/refs", "GitHub"),
            ("api.github.com:443", "PATCH", "/Repos/a/b/Git/Refs/heads/main/", "GitHub"),
            ("api.github.com:443", "PUT", "/repos/a/b/pulls/7/merge", "GitHub"),
            ("api.github.com:443", "POST", "/user/keys", "GitHub"),
            ("git.corp.test:443", "DELETE", "/api/v3/repos/a/b/git/refs/heads/main", "GitHub"),
            ("git.corp.test:8443", "POST", "/api/v4/projects/17/repository/commits", "GitLab"),
            ("git.corp.test:443", "PUT", "/api/v4/projects/17/merge_requests/3/merge", "GitLab"),
            ("code.test:443", "POST", "/api/v1/repos/a/b/contents/x", "Forgejo or Gitea"),
            ("code.test:443", "POST", "/api/v1/repos/a/b/push_mirrors", "Forgejo or Gitea"),
            ("api.bitbucket.org:443", "POST", "/2.0/repositories/a/b/src", "Bitbucket"),
        ] {
            assert_eq!(writer(host, method, path), Some(forge), "{method} {host}{path}");
        }
        for (host, method, path) in [
            ("api.github.com:443", "GET", "/repos/a/b/contents/src/main.rs"),
            ("api.github.com:443", "POST", "/repos/a/b/issues/3/comments"),
            ("api.github.com:443", "POST", "/repos/a/b/pulls/3/reviews"),
            ("shop.test:443", "POST", "/user/keys"),
            ("shop.test:443", "PUT", "/contents/x"),
            ("git.corp.test:443", "GET", "/api/v4/projects/17/repository/commits"),
            ("git.corp.test:443", "POST", "/api/v4/projects/17/issues"),
        ] {
            assert_eq!(writer(host, method, path), None, "{method} {host}{path}");
        }
    }

    fn json(query: &str) -> Vec<u8> {
        serde_json::to_vec(&serde_json::json!({"query": query, "variables": {"query": "mutation { x }"}})).unwrap()
    }

    #[test]
    fn p7_what_a_mutation_does_is_read_from_its_document() {
        let of = |query: &str| does(&json(query), None, true);
        let asks = |names: &[&str]| Does::Asks(names.iter().map(|n| (*n).to_owned()).collect());
        for read in [
            "{ viewer { login } }",
            "query A { a: createRef }",
            "subscription { x }",
            "query A { x } fragment F on Mutation { createRef }",
        ] {
            assert_eq!(of(read), Does::Reads, "{read}");
        }
        assert_eq!(of("mutation { addComment(input: {}) { clientMutationId } }"), asks(&["addComment"]));
        assert_eq!(
            of("mutation M($a: X!) { a: addComment(input: $a) { id } b: closeIssue { id } __typename }"),
            asks(&["addComment", "closeIssue"])
        );
        assert_eq!(
            of(
                "mutation { ...F } fragment F on Mutation { ... on Mutation { ...G } } fragment G on Mutation { addStar { id } ...F }"
            ),
            asks(&["addStar"])
        );
        for write in [
            "mutation { createCommitOnBranch(input: {}) { commit { oid } } }",
            "mutation { addComment: createRef { id } }",
            "query A { x } mutation B { mergePullRequest { id } }",
            "mutation { addComment { id } ...F } fragment F on Mutation { updateRef { id } }",
            "mutation { ... { deleteRef { id } } }",
            "mutation { ...F }",
            "mutation { nobodyKnows { id } }",
            "mutation { addComment { id }",
            "mutation",
            "",
            "type Mutation { x: Int }",
        ] {
            assert!(matches!(of(write), Does::Writes(_)), "{write}: {:?}", of(write));
        }
        let deep = "{a".repeat(5000) + &"}".repeat(5000);
        assert!(matches!(of(&deep), Does::Writes(_)), "what is nested without end");
    }

    #[test]
    fn p7_a_document_is_read_in_one_way_only() {
        let unknown =
            |body: &str, query| assert!(matches!(does(body.as_bytes(), query, true), Does::Writes(_)), "{body} {query:?}");
        for body in [
            r#"{"query":"{a}","query":"mutation{createRef{id}}"}"#,
            r#"{"Query":"mutation{createRef{id}}","query":"{a}"}"#,
            r#"{"query":["mutation{createRef{id}}"]}"#,
            r#"{"id":"stored"}"#,
            r#"{"extensions":{"persistedQuery":{}}}"#,
            r#"[{"query":"{a}"},{"id":"x"}]"#,
            r#"query=mutation{createRef{id}}"#,
            "\u{feff}{}",
        ] {
            unknown(body, None);
        }
        unknown("", None);
        unknown(r#"{"query":"{a}"}"#, Some("query=mutation%20%7BcreateRef%7Bid%7D%7D"));
        assert_eq!(does(b"", Some("query=%7Ba%7D"), true), Does::Reads);
        assert_eq!(
            does(br#"[{"query":"{a}"},{"query":"mutation{addStar{id}}"}]"#, None, true),
            Does::Asks(vec!["addStar".into()])
        );
        assert!(matches!(does(b"mutation{createRef{id}}", None, false), Does::Writes(_)));
    }

    #[test]
    fn a_forge_is_known_by_its_name_or_its_path() {
        let is = |host: &str, path: &str| is_graphql(&Target::parse(host).unwrap(), &HttpRequest::new("POST", path).unwrap());
        assert!(
            is("api.github.com:443", "/graphql")
                && is("git.corp.test:443", "/api/graphql/")
                && is("corp-gitlab.test:443", "/x/GraphQL")
        );
        assert!(!is("shop.test:443", "/graphql") && !is("api.github.com:443", "/repos/a/b"));
        let stores = |host: &str| stores(&Host::parse(host).unwrap());
        assert!(
            stores("gist.github.com")
                && stores("b.s3.eu-west-1.amazonaws.com")
                && !stores("notgithub.com")
                && !stores("example.org")
        );
    }
}
