//! Candidates, diffs and decisions as the window shows them.

use model::diff as m;
use serde::Serialize;
use ts_rs::TS;

/// A candidate with its changed files and the review so far.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Changes {
    tree: String,
    /// False when something ran while it was taken: it can be looked at, not approved.
    still: bool,
    left_out: Vec<LeftOut>,
    files: Vec<ChangedFile>,
    review: Review,
}

/// What an apply or its undo did.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Applied {
    branch: String,
    old: Option<String>,
    new: Option<String>,
    files: usize,
    working_copy: bool,
}

/// A path that is not in the candidate.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct LeftOut {
    path: String,
    reason: String,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    Mode,
}

/// What a reviewer should look at first.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    Ci,
    Runs,
    Lockfile,
    Executable,
    Symlink,
    Escapes,
    Binary,
    Bidi,
}

/// One changed file.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangedFile {
    path: String,
    old_path: Option<String>,
    kind: ChangeKind,
    old_mode: u32,
    new_mode: u32,
    added: u32,
    removed: u32,
    binary: bool,
    marks: Vec<Mark>,
}

/// Kind of a row.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RowKind {
    Hunk,
    Context,
    Add,
    Del,
    Note,
}

/// Syntax classes, one per colour of the window.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    Text,
    Kw,
    Ty,
    Fn,
    Str,
    Num,
    Com,
    Mac,
    Esc,
}

/// A piece of a row.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Span {
    text: String,
    class: Class,
    word: bool,
}

/// One row of a unified diff.
#[derive(Debug, Clone, Serialize, TS)]
pub(crate) struct Row {
    kind: RowKind,
    old: Option<u32>,
    new: Option<u32>,
    hunk: u32,
    /// Index of the row that stands beside it in a split view.
    pair: Option<u32>,
    spans: Vec<Span>,
}

/// One file's diff, as rows.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileDiff {
    file: ChangedFile,
    rows: Vec<Row>,
    old_size: u64,
    new_size: u64,
    note: Option<String>,
}

/// A decision about one changed file.
#[derive(Debug, Clone, Copy, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileDecision {
    Open,
    Accepted,
    Rejected,
}

/// One changed file with its decision.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileReview {
    path: String,
    decision: FileDecision,
    changed_since: bool,
}

/// A review of one candidate.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Review {
    tree: String,
    files: Vec<FileReview>,
    /// The tree that results from the decisions.
    result: String,
    approved: bool,
}

impl From<(engine::Look, model::review::Review)> for Changes {
    fn from((look, review): (engine::Look, model::review::Review)) -> Self {
        Self {
            tree: look.candidate.tree.to_string(),
            still: look.candidate.still,
            left_out: look
                .candidate
                .left_out
                .into_iter()
                .map(|(path, reason)| LeftOut { path: path.to_string(), reason })
                .collect(),
            files: look.files.into_iter().map(Into::into).collect(),
            review: review.into(),
        }
    }
}

impl From<engine::Applied> for Applied {
    fn from(a: engine::Applied) -> Self {
        Self { branch: a.branch, old: a.old, new: a.new, files: a.files, working_copy: a.working_copy }
    }
}

impl From<m::ChangedFile> for ChangedFile {
    fn from(f: m::ChangedFile) -> Self {
        Self {
            path: f.path.to_string(),
            old_path: f.old_path.map(|p| p.to_string()),
            kind: match f.kind {
                m::ChangeKind::Added => ChangeKind::Added,
                m::ChangeKind::Modified => ChangeKind::Modified,
                m::ChangeKind::Deleted => ChangeKind::Deleted,
                m::ChangeKind::Renamed => ChangeKind::Renamed,
                m::ChangeKind::Mode => ChangeKind::Mode,
            },
            old_mode: f.old_mode,
            new_mode: f.new_mode,
            added: f.added,
            removed: f.removed,
            binary: f.binary,
            marks: f
                .marks
                .into_iter()
                .map(|mark| match mark {
                    m::Mark::Ci => Mark::Ci,
                    m::Mark::Runs => Mark::Runs,
                    m::Mark::Lockfile => Mark::Lockfile,
                    m::Mark::Executable => Mark::Executable,
                    m::Mark::Symlink => Mark::Symlink,
                    m::Mark::Escapes => Mark::Escapes,
                    m::Mark::Binary => Mark::Binary,
                    m::Mark::Bidi => Mark::Bidi,
                })
                .collect(),
        }
    }
}

impl From<m::Row> for Row {
    fn from(r: m::Row) -> Self {
        Self {
            kind: match r.kind {
                m::RowKind::Hunk => RowKind::Hunk,
                m::RowKind::Context => RowKind::Context,
                m::RowKind::Add => RowKind::Add,
                m::RowKind::Del => RowKind::Del,
                m::RowKind::Note => RowKind::Note,
            },
            old: r.old,
            new: r.new,
            hunk: r.hunk,
            pair: r.pair,
            spans: r.spans.into_iter().map(|s| Span { text: s.text, class: s.class.into(), word: s.word }).collect(),
        }
    }
}

impl From<m::Class> for Class {
    fn from(c: m::Class) -> Self {
        match c {
            m::Class::Text => Self::Text,
            m::Class::Kw => Self::Kw,
            m::Class::Ty => Self::Ty,
            m::Class::Fn => Self::Fn,
            m::Class::Str => Self::Str,
            m::Class::Num => Self::Num,
            m::Class::Com => Self::Com,
            m::Class::Mac => Self::Mac,
            m::Class::Esc => Self::Esc,
        }
    }
}

impl From<m::FileDiff> for FileDiff {
    fn from(d: m::FileDiff) -> Self {
        Self {
            file: d.file.into(),
            rows: d.rows.into_iter().map(Into::into).collect(),
            old_size: d.sizes.0,
            new_size: d.sizes.1,
            note: d.note,
        }
    }
}

impl From<model::review::Review> for Review {
    fn from(r: model::review::Review) -> Self {
        use model::review::FileDecision as D;
        Self {
            tree: r.tree.to_string(),
            files: r
                .files
                .into_iter()
                .map(|f| FileReview {
                    path: f.path.to_string(),
                    decision: match f.decision {
                        D::Open => FileDecision::Open,
                        D::Accepted => FileDecision::Accepted,
                        D::Rejected => FileDecision::Rejected,
                    },
                    changed_since: f.changed_since,
                })
                .collect(),
            result: r.result.to_string(),
            approved: r.approved,
        }
    }
}
