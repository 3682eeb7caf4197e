//! What a policy answers: `Allow < Ask < Deny`, so that the strictest of many is their maximum.

use serde::{Deserialize, Serialize};

/// A policy's answer, ordered so that `max` is the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Goes ahead.
    Allow,
    /// Waits for the person.
    Ask,
    /// Is refused.
    Deny,
}

/// A decision with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// The answer.
    pub decision: Decision,
    /// Which rule said so, e.g. `network.rule[2]`, `network.default`, `files.hide`.
    pub rule: String,
    /// Which file the rule is from, with the line where known, e.g. `standard:12`.
    pub source: String,
    /// The rule's own reason, shown to the person.
    pub reason: String,
}
