//! Turns `policies/seccomp/*.json` into the tables that the jail assembles its filters from.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Each has a file of its name, and its table is compiled whichever the target is, so that every build checks all of them.
const ARCHES: [&str; 2] = ["x86_64", "aarch64"];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let policies = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../policies/seccomp");
    println!("cargo::rerun-if-changed={}", policies.display());
    let read = |name: String| -> Result<Value, Failure> {
        let path = policies.join(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()).into())
    };
    let told = read("notify.json".into())?;
    for arch in ARCHES {
        let code = code(arch, &read(format!("{arch}.json"))?, &told).map_err(|e| format!("{arch}: {e}"))?;
        fs::write(Path::new(&env::var("OUT_DIR")?).join(format!("{arch}.rs")), code)?;
    }
    Ok(())
}

fn code(arch: &str, table: &Value, told: &Value) -> Result<String, Failure> {
    let mut numbers = BTreeMap::new();
    let mut last = None;
    let mut code = String::from("use sys::bpf::{Action, Clause, Entry, Test};\n");
    writeln!(
        code,
        "/// Architecture that every call must be of.\npub(super) const ARCH: u32 = sys::bpf::{};",
        arch.to_uppercase()
    )?;
    let mut tables = [String::new(), String::new(), String::new()];
    for call in list(table, "syscalls")? {
        let (name, number) = (text(call, "name")?, number(&call["nr"])?);
        if numbers.insert(name.to_owned(), number).is_some() {
            return Err(format!("{name} is listed twice").into());
        }
        if last.replace(number).is_some_and(|last| last >= number) {
            return Err(format!("{name}: {number} is listed twice or out of order").into());
        }
        // Where namespaces may be made inside, and where there is none around, some calls have a rule of their own.
        let own = |key: &str| call.get(key).unwrap_or(call);
        for (rules, rule) in tables.iter_mut().zip([call, own("nested"), own("fallback")]) {
            let (clauses, otherwise) = rule_of(name, rule)?;
            writeln!(rules, "    Entry {{ number: {number}, clauses: &[{clauses}], otherwise: {otherwise} }}, // {name}")?;
        }
    }
    let [confine, nested, fallback] = tables;
    writeln!(code, "/// What the agent may call.\npub(super) static CONFINE: &[Entry] = &[\n{confine}];")?;
    writeln!(
        code,
        "/// What it may call where it may make namespaces.\npub(super) static CONFINE_NESTED: &[Entry] = &[\n{nested}"
    )?;
    writeln!(
        code,
        "];\n/// What it may call in a jail without namespaces.\npub(super) static CONFINE_FALLBACK: &[Entry] = &[\n{fallback}];"
    )?;
    let mut entries = notified(&numbers, list(told, "syscalls")?)?;
    let mut table = |name: &str, what: &str, entries: &BTreeMap<u32, String>| -> Result<(), Failure> {
        let lines: String = entries.values().map(|entry| format!("    {entry}\n")).collect();
        Ok(writeln!(code, "/// {what}\npub(super) static {name}: &[Entry] = &[\n{lines}];")?)
    };
    table("NOTIFY", "What is told before it goes on.", &entries)?;
    let made = notified(&numbers, list(told, "made")?)?;
    entries.extend(made);
    table("NOTIFY_FALLBACK", "What waits in a jail without namespaces: also what is made outside, and never goes on.", &entries)?;
    Ok(code)
}

/// The entries of calls that wait for an answer, by number.
fn notified(numbers: &BTreeMap<String, u32>, calls: &[Value]) -> Result<BTreeMap<u32, String>, Failure> {
    let mut entries = BTreeMap::new();
    for call in calls {
        let name = text(call, "name")?;
        text(call, "why").map_err(|_| format!("{name}: every line says why"))?;
        // An architecture without, say, `open` has no number for it.
        let Some(number) = numbers.get(name) else { continue };
        let entry = match call.get("if") {
            None => format!("Entry {{ number: {number}, clauses: &[], otherwise: Action::Notify }}, // {name}"),
            Some(condition) => format!(
                "Entry {{ number: {number}, clauses: &[Clause {{ all: &[{}], then: Action::Notify }}], otherwise: Action::Allow }}, // {name}",
                test(condition)?
            ),
        };
        if entries.insert(*number, entry).is_some() {
            return Err(format!("{name} is told twice").into());
        }
    }
    Ok(entries)
}

/// A call's clauses, and what becomes of it where none holds.
fn rule_of(name: &str, rule: &Value) -> Result<(String, String), Failure> {
    text(rule, "why").map_err(|_| format!("{name}: every line says why"))?;
    Ok(match text(rule, "do")? {
        "allow" => (String::new(), "Action::Allow".to_owned()),
        "refuse" => (String::new(), action(text(rule, "errno")?)?),
        "check" => (clauses(rule).map_err(|e| format!("{name}: {e}"))?, action(text(rule, "else")?)?),
        other => return Err(format!("{name}: `{other}` is none of allow, refuse, check").into()),
    })
}

fn clauses(call: &Value) -> Result<String, Failure> {
    let mut code = String::new();
    for clause in list(call, "clauses")? {
        text(clause, "why").map_err(|_| "every clause says why")?;
        let tests = list(clause, "if")?.iter().map(test).collect::<Result<Vec<_>, _>>()?;
        write!(code, "Clause {{ all: &[{}], then: {} }}, ", tests.join(", "), action(text(clause, "then")?)?)?;
    }
    Ok(code)
}

fn test(condition: &Value) -> Result<String, Failure> {
    let arg = number(&condition["arg"])?;
    if let Some(mask) = condition.get("any_bit") {
        return Ok(format!("Test::AnyBit {{ arg: {arg}, mask: {} }}", number(mask)?));
    }
    let mask = condition.get("mask").map_or(Ok(u32::MAX), number)?;
    let values = list(condition, "one_of")?.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("Test::OneOf {{ arg: {arg}, mask: {mask}, values: &{values:?} }}"))
}

fn action(word: &str) -> Result<String, Failure> {
    // Numbers that all Linux architectures share.
    let errno = match word {
        "allow" => return Ok("Action::Allow".to_owned()),
        "EPERM" => 1,
        "ENOMEM" => 12,
        "EINVAL" => 22,
        "ENOTTY" => 25,
        "ENOSYS" => 38,
        "ENOPROTOOPT" => 92,
        "EPROTONOSUPPORT" => 93,
        "EOPNOTSUPP" => 95,
        "EAFNOSUPPORT" => 97,
        other => return Err(format!("`{other}` is no error number known here").into()),
    };
    Ok(format!("Action::Errno({errno})"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, Failure> {
    value[key].as_array().ok_or_else(|| format!("`{key}` is missing in {value}").into())
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Failure> {
    value[key].as_str().filter(|t| !t.is_empty()).ok_or_else(|| format!("`{key}` is missing in {value}").into())
}

/// A number, or a text in hexadecimal.
fn number(value: &Value) -> Result<u32, Failure> {
    match value {
        Value::Number(n) => Ok(u32::try_from(n.as_u64().ok_or("a number is negative or a fraction")?)?),
        Value::String(s) => Ok(u32::from_str_radix(s.strip_prefix("0x").ok_or("a text number starts with 0x")?, 16)?),
        _ => Err(format!("{value} is no number").into()),
    }
}
