//! Arguments. The contract that tests and scripts rely on.

use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Coding agents in sealed workspaces: watch, review, apply. Alone it opens the window.
#[derive(Debug, Parser)]
#[command(name = "airlock", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a task and run an agent or a command in it
    Run(Run),
    /// A whole task in a minute, with a built-in repository and agent
    Demo(Json),
    /// Repositories: list, add, forget
    Repo(Repo),
    /// Tasks: list, show, pause, continue, stop, discard
    Task(Task),
    /// What happened in a task
    Events(Events),
    /// Write down what a task did on the network, for other programs
    Export(Export),
    /// What waits for your answer: list, show, allow, deny
    Ask(Ask),
    /// What you permitted beyond the policy: list, add, revoke
    Grant(Grant),
    /// Look at a page that a program of a task serves, in your browser
    Preview(Preview),
    /// What a task changed
    Diff(Diff),
    /// Accept, reject, approve
    Review(Review),
    /// Put the approved result on a local branch
    Apply(Apply),
    /// Take the newest apply back
    Undo(One),
    /// Policies: check a file, show what is in force
    Policy(Policy),
    /// What this machine can keep
    Doctor(Json),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Json {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct One {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// Repository [default: the one that the current directory is in]
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Commit to start from [default: what is checked out]
    #[arg(long, value_name = "REV", allow_hyphen_values = true)]
    pub(crate) base: Option<String>,
    /// Name of the task
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// Policy: a preset, one of your own, or a file [default: standard]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) policy: Option<String>,
    /// Environment for the command
    #[arg(long, value_name = "K=V", action = ArgAction::Append)]
    pub(crate) env: Vec<String>,
    /// What the agent is asked
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// Agent kit, e.g. claude-code or shell
    #[arg(long, value_name = "KIT", conflicts_with = "command")]
    pub(crate) agent: Option<String>,
    /// Leave it running and print its ids
    #[arg(long)]
    pub(crate) detach: bool,
    /// Discard the task at the end
    #[arg(long, conflicts_with = "detach")]
    pub(crate) rm: bool,
    /// Print one JSON object at the end; the command's output is kept with the run
    #[arg(long)]
    pub(crate) json: bool,
    /// Command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Repo {
    #[command(subcommand)]
    pub(crate) verb: RepoVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RepoVerb {
    /// List them
    List(Json),
    /// Add the repository that a directory is in
    Add {
        /// Directory
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget one; its tasks must be discarded, nothing of yours is touched
    Forget {
        /// Directory or id
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Task {
    #[command(subcommand)]
    pub(crate) verb: TaskVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskVerb {
    /// List them, newest first
    List(Json),
    /// Show one with its runs
    Show(One),
    /// End its run: every process
    Stop(One),
    /// Stop every process of its run where it is; the run's clock goes on
    Pause(One),
    /// Let a paused run go on
    Continue(One),
    /// Remove its files; the record stays
    Discard(One),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Events {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// Go on until the run ends
    #[arg(long)]
    pub(crate) follow: bool,
    /// Only these kinds: file, process, network, ask, decision, limit, lifecycle
    #[arg(long, value_delimiter = ',', value_parser = ["file", "process", "network", "ask", "decision", "limit", "lifecycle"])]
    pub(crate) kind: Vec<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Export {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// As lines of JSON, one a record, or as an HTTP archive of the requests that were read
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "jsonl")]
    pub(crate) form: Form,
    /// Into this file [default: to stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    Jsonl,
    Har,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Ask {
    #[command(subcommand)]
    pub(crate) verb: AskVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AskVerb {
    /// List what is open, oldest first
    List {
        /// Only of this task
        id: Option<String>,
        /// Also what is over
        #[arg(long)]
        all: bool,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show one in full
    Show {
        /// Ask
        ask: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let it through
    Allow {
        /// Ask, with the digest of what you saw where a script answers
        #[arg(value_name = "ASK[@DIGEST]")]
        ask: String,
        /// How far: what waits now, the whole task, or every task of the repository
        #[arg(long, value_enum, default_value = "once")]
        scope: Scope,
        /// For how long, e.g. 30m [default: for good]
        #[arg(long = "for", value_name = "TIME")]
        lasts: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Refuse it for the rest of the run
    Deny {
        /// Ask, with the digest of what you saw where a script answers
        #[arg(value_name = "ASK[@DIGEST]")]
        ask: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scope {
    Once,
    Task,
    Repo,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Grant {
    #[command(subcommand)]
    pub(crate) verb: GrantVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantVerb {
    /// List them, newest first
    List {
        /// Only those that count for this task
        id: Option<String>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Permit connections to one port of one host, or a look into a hidden place; never what a policy denies
    Add {
        /// Where to, e.g. example.org:443; or what to read, e.g. ~/.config/tool
        #[arg(value_name = "HOST[:PORT]|PATH")]
        target: String,
        /// For one task
        #[arg(long, value_name = "ID", conflicts_with = "repo")]
        task: Option<String>,
        /// For every task of a repository
        #[arg(long, value_name = "DIR")]
        repo: Option<PathBuf>,
        /// For how long, e.g. 30m [default: for good]
        #[arg(long = "for", value_name = "TIME")]
        lasts: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take one back and close what lives by it
    Revoke {
        /// Grant
        grant: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Preview {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// Port that the program listens on [default: the one that it took]
    pub(crate) port: Option<u16>,
    /// Close it again, with its connections
    #[arg(long, requires = "port")]
    pub(crate) close: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Diff {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// A line a file
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print JSON: the candidate's tree and its files
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Review {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// Candidate that was looked at, as `airlock diff --json` names it
    #[arg(long)]
    pub(crate) tree: String,
    /// Accept these files; `.` means every file that is still open
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) accept: Vec<OsString>,
    /// Reject these files; `.` means every file that is still open
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) reject: Vec<OsString>,
    /// Approve the result; every file must be decided
    #[arg(long)]
    pub(crate) approve: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Apply {
    /// Id, branch or title of the task
    pub(crate) id: String,
    /// Approved result, as `airlock review --json` names it
    #[arg(long)]
    pub(crate) tree: String,
    /// Branch [default: the one that the task started from]
    #[arg(long, value_name = "BRANCH")]
    pub(crate) onto: Option<String>,
    /// Commit message [default: the task's title]
    #[arg(long, value_name = "M", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Check a file: every problem with line and column
    Check {
        /// File
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a task's policy in plain language
    Show(One),
    /// Say which rule answers a request, from which file and line
    Explain {
        /// Id, branch or title of the task
        id: String,
        /// `example.org`, `example.org:443` or `GET https://example.org/path`
        request: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
