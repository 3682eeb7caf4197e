//! Changes between two trees: the list of files, and one file as rows ready to be drawn.

use crate::id::{BlobId, TreeId};
use crate::path::RawPath;
use serde::{Deserialize, Serialize};

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// New.
    Added,
    /// Other content.
    Modified,
    /// Gone.
    Deleted,
    /// Other name, content alike.
    Renamed,
    /// Same content, other mode (executable bit) or type (file, symlink).
    Mode,
}

/// What a reviewer should look at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// CI definition.
    Ci,
    /// Runs on the person's machine: hooks, editor tasks, package scripts, build scripts.
    Runs,
    /// Lockfile.
    Lockfile,
    /// Executable bit set.
    Executable,
    /// Symbolic link.
    Symlink,
    /// Symbolic link that leads out of the tree.
    Escapes,
    /// Binary content.
    Binary,
    /// Characters that hide or reorder text.
    Bidi,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Path (the new one for a rename).
    pub path: RawPath,
    /// Path before a rename.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub old_path: Option<RawPath>,
    /// What became of it.
    pub kind: ChangeKind,
    /// Git file mode before, e.g. 0o100644; 0 where it did not exist.
    pub old_mode: u32,
    /// Git file mode after; 0 where it is gone.
    pub new_mode: u32,
    /// Content before.
    pub old_id: Option<BlobId>,
    /// Content after.
    pub new_id: Option<BlobId>,
    /// Lines added.
    pub added: u32,
    /// Lines removed.
    pub removed: u32,
    /// No line diff.
    pub binary: bool,
    /// Risk marks.
    pub marks: Vec<Mark>,
}

/// A candidate: the workspace frozen as a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its tree.
    pub tree: TreeId,
    /// Whether nothing ran while it was taken. False can be looked at, not approved.
    pub still: bool,
    /// Paths left out, each with the reason (nested repository, unreadable, special file).
    pub left_out: Vec<(RawPath, String)>,
}

/// One file's diff, as rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    /// The file.
    pub file: ChangedFile,
    /// Rows in order; a split view pairs them by `pair`.
    pub rows: Vec<Row>,
    /// Size before and after, bytes.
    pub sizes: (u64, u64),
    /// Why there are no rows (binary, too long for one answer), in words.
    pub note: Option<String>,
}

/// Kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// `@@ … @@` with the function it is in.
    Hunk,
    /// On both sides.
    Context,
    /// New side.
    Add,
    /// Old side.
    Del,
    /// "No newline at end of file" and the like.
    Note,
}

/// One row of a unified diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Kind.
    pub kind: RowKind,
    /// Line number on the old side.
    pub old: Option<u32>,
    /// Line number on the new side.
    pub new: Option<u32>,
    /// Number of the hunk, from 0.
    pub hunk: u32,
    /// For a deleted line: index in `rows` of the added line that stands beside it in a split view, and the reverse.
    pub pair: Option<u32>,
    /// The text in coloured pieces; a tab stays a tab, the line end is cut, characters that hide are written out as escapes
    /// in a piece of class `Esc`.
    pub spans: Vec<Span>,
}

/// A piece of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Text.
    pub text: String,
    /// Colour.
    pub class: Class,
    /// Inside the part of the line that changed.
    pub word: bool,
}

/// Syntax classes, one per colour of the window (`--sx-*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Plain.
    Text,
    /// Keyword.
    Kw,
    /// Type.
    Ty,
    /// Function.
    Fn,
    /// String.
    Str,
    /// Number or constant.
    Num,
    /// Comment.
    Com,
    /// Macro or attribute.
    Mac,
    /// A character that hides, written out.
    Esc,
}
