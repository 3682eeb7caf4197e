//! Runs `policies/cases/*.toml`.

use policy::{Leads, Policy, Problem, Request, Target};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<String>,
    preset: Option<String>,
    repository: Option<String>,
    kit: Option<String>,
    not_in_force: Option<Vec<String>>,
    #[serde(default)]
    case: Vec<Case>,
    #[serde(default)]
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    request: String,
    decision: model::decision::Decision,
    rule: String,
    reason: Option<String>,
    address: Option<String>,
    /// The range that it must lead into.
    cidr: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    text: String,
    #[serde(default)]
    repository: bool,
    problems: Vec<String>,
}

fn files() -> Vec<(String, File)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/cases");
    let mut out: Vec<(String, File)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .map(|p| {
            let file = toml::from_str(&std::fs::read_to_string(&p).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
            (p.file_name().unwrap().to_string_lossy().into_owned(), file)
        })
        .collect();
    out.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(out.len() >= 6, "the cases are where they are looked for");
    out
}

fn request(text: &str) -> Request {
    match text.split_once(' ').unwrap() {
        ("connect", t) => Request::Connect(Target::parse(t).unwrap()),
        ("lookup", h) => Request::Lookup(policy::Host::parse(h).unwrap()),
        _ => Request::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")),
    }
}

fn load(name: &str, file: &File) -> Policy {
    let mut text = match (&file.policy, &file.preset) {
        (Some(text), None) => text.clone(),
        (None, Some(preset)) => policy::preset(preset).unwrap().to_owned(),
        _ => panic!("{name}: a file of cases has a policy or a preset"),
    };
    if let Some(kit) = &file.kit {
        text = policy::kit(kit).unwrap().unwrap().add_to(name, &text, &|_| false).unwrap();
    }
    let text = model::run::PolicyText { name: name.to_owned(), text, repository: file.repository.clone() };
    policy::load(&text).unwrap_or_else(|(file, p)| panic!("{name}: {file}: {p:#?}"))
}

#[test]
fn every_case_is_answered_as_it_says() {
    let mut count = 0;
    for (name, file) in files().iter().filter(|(_, f)| !f.case.is_empty()) {
        let policy = load(name, file);
        if let Some(want) = &file.not_in_force {
            let keys: Vec<&String> = policy.not_in_force().iter().map(|n| &n.key).collect();
            assert_eq!(keys, want.iter().collect::<Vec<_>>(), "{name}: what is not in force is listed");
        }
        for case in &file.case {
            let request = request(&case.request);
            let answer = policy::answer(&policy, &request);
            let told = format!("{name}: {}: {answer:?}", case.request);
            assert_eq!((answer.ruling.decision, &answer.ruling.rule), (case.decision, &case.rule), "{told}");
            if let Some(reason) = &case.reason {
                assert_eq!(&answer.ruling.reason, reason, "{told}");
            }
            let (address, cidr) = match answer.leads {
                Leads::Public => (None, None),
                Leads::At(a) => (Some(a.to_string()), None),
                Leads::Within(range) => (None, Some(range.to_string())),
            };
            assert_eq!((address, cidr), (case.address.clone(), case.cidr.clone()), "{told}");
            let explained = policy::explain(&policy, &request);
            assert!(explained[0].contains(&case.rule), "the explanation names the rule that decided: {explained:#?}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} cases were found");
}

#[test]
fn every_bad_file_is_refused_with_all_its_problems() {
    let mut count = 0;
    for (name, file) in files() {
        for bad in file.refused {
            let problems: Vec<Problem> = if bad.repository {
                policy::parse_repository("bad", &bad.text).map(drop).unwrap_err()
            } else {
                policy::parse("bad", &bad.text).map(drop).unwrap_err()
            };
            let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(told, bad.problems, "{name}: {}", bad.text);
            count += 1;
        }
    }
    assert!(count >= 8, "only {count} bad files were found");
}
