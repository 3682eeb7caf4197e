//! The lists as they are written, read without `build.rs`, so that the two readings can be compared.

use serde_json::Value;
use std::collections::BTreeSet;
use sys::bpf::Action;

pub(super) struct Lists {
    pub(super) arch: &'static str,
    pub(super) kernel: String,
    pub(super) calls: Vec<Call>,
    pub(super) told: Vec<Told>,
    pub(super) made: Vec<Told>,
}

/// One line of an architecture's list.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) line: Value,
}

/// One line of `notify.json`.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) line: Value,
}

impl Lists {
    /// Of x86_64 and aarch64.
    pub(super) fn both() -> [Lists; 2] {
        let told: Value = serde_json::from_str(include_str!("../../../../../policies/seccomp/notify.json")).unwrap();
        [
            Lists::read("x86_64", include_str!("../../../../../policies/seccomp/x86_64.json"), &told),
            Lists::read("aarch64", include_str!("../../../../../policies/seccomp/aarch64.json"), &told),
        ]
    }

    pub(super) fn read(arch: &'static str, text: &str, told: &Value) -> Lists {
        let list: Value = serde_json::from_str(text).unwrap();
        assert_eq!(list["arch"], arch, "the file is of its name");
        let name = |line: &Value| line["name"].as_str().unwrap().to_owned();
        let calls = list["syscalls"].as_array().unwrap().iter();
        let calls = calls.map(|line| Call { name: name(line), number: number(&line["nr"]), line: line.clone() }).collect();
        let told =
            |key: &str| told[key].as_array().unwrap().iter().map(|line| Told { name: name(line), line: line.clone() }).collect();
        let kernel = list["kernel"].as_str().unwrap().to_owned();
        Lists { arch, kernel, calls, told: told("syscalls"), made: told("made") }
    }

    /// The same lists where namespaces may be made inside.
    pub(super) fn nested(self) -> Lists {
        self.with("nested")
    }

    /// The same lists where there is no namespace around: what is made outside counts as told.
    pub(super) fn fallback(mut self) -> Lists {
        self.told.retain(|told| !self.made.iter().any(|made| made.name == told.name));
        self.told.extend(self.made.iter().cloned());
        self.with("fallback")
    }

    fn with(mut self, key: &str) -> Lists {
        for call in &mut self.calls {
            if let Some(rule) = call.line.get(key).cloned() {
                call.line = rule;
            }
        }
        self
    }

    pub(super) fn call(&self, name: &str) -> Option<&Call> {
        self.calls.iter().find(|call| call.name == name)
    }
}

impl Call {
    /// What is to become of the call: `allow` or the name of an error.
    pub(super) fn decide(&self, args: &[u32; 6]) -> &str {
        match self.line["do"].as_str().unwrap() {
            "allow" => "allow",
            "refuse" => self.line["errno"].as_str().unwrap(),
            _ => {
                let clauses = self.line["clauses"].as_array().unwrap();
                let first = clauses.iter().find(|clause| clause["if"].as_array().unwrap().iter().all(|test| holds(test, args)));
                first.map_or(&self.line["else"], |clause| &clause["then"]).as_str().unwrap()
            }
        }
    }

    pub(super) fn clauses(&self) -> &[Value] {
        self.line["clauses"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Arguments among which every case that the line makes a difference of is found.
    pub(super) fn points(&self) -> Vec<[u32; 6]> {
        points(self.clauses().iter().flat_map(|clause| clause["if"].as_array().unwrap()))
    }
}

impl Told {
    pub(super) fn told(&self, args: &[u32; 6]) -> bool {
        self.line.get("if").is_none_or(|test| holds(test, args))
    }

    pub(super) fn points(&self) -> Vec<[u32; 6]> {
        points(self.line.get("if").into_iter())
    }
}

/// The product, over all arguments that the tests ask about, of the values that could matter.
pub(super) fn points<'a>(tests: impl Iterator<Item = &'a Value>) -> Vec<[u32; 6]> {
    let mut values: [BTreeSet<u32>; 6] = std::array::from_fn(|_| BTreeSet::from([0]));
    for test in tests {
        let mask = test.get("mask").map_or(u32::MAX, number);
        let asked = &mut values[usize::try_from(number(&test["arg"])).unwrap()];
        let bits =
            test.get("any_bit").map(number).into_iter().flat_map(|bits| (0..32).map(|b| 1 << b).filter(move |b| bits & b != 0));
        let equal = test["one_of"].as_array().into_iter().flatten().map(number);
        for value in bits.chain(equal) {
            // Itself, its neighbours, and with something beside it that the mask leaves out or does not.
            let with = [value | (!mask & 0x0008_0001), value | 0x4000_0000, value.wrapping_add(1), value.wrapping_sub(1)];
            asked.extend([value].into_iter().chain(with));
        }
        asked.insert(u32::MAX);
    }
    let mut all = vec![[0; 6]];
    for (arg, values) in values.iter().enumerate() {
        let with = |value: &u32, point: &[u32; 6]| {
            let mut point = *point;
            point[arg] = *value;
            point
        };
        all = all.iter().flat_map(|point| values.iter().map(move |value| with(value, point))).collect();
    }
    all
}

pub(super) fn holds(test: &Value, args: &[u32; 6]) -> bool {
    let arg = args[usize::try_from(number(&test["arg"])).unwrap()];
    match test.get("any_bit") {
        Some(bits) => arg & number(bits) != 0,
        None => {
            let masked = arg & test.get("mask").map_or(u32::MAX, number);
            test["one_of"].as_array().unwrap().iter().any(|value| number(value) == masked)
        }
    }
}

pub(super) fn number(value: &Value) -> u32 {
    match value.as_str() {
        Some(text) => u32::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        None => u32::try_from(value.as_u64().unwrap()).unwrap(),
    }
}

/// The action that a word means.
pub(super) fn decided(word: &str) -> Action {
    Action::Errno(match word {
        "allow" => return Action::Allow,
        "EPERM" => 1,
        "ENOMEM" => 12,
        "ENOTTY" => 25,
        "EINVAL" => 22,
        "ENOSYS" => 38,
        "ENOPROTOOPT" => 92,
        "EPROTONOSUPPORT" => 93,
        "EOPNOTSUPP" => 95,
        "EAFNOSUPPORT" => 97,
        other => panic!("`{other}` is no error known here"),
    })
}
