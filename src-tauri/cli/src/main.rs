//! The command line `airlock`: arguments in, engine verb, text or JSON out.
//!
//! Invariant: every verb is the engine's; this crate only reads arguments, carries bytes and prints.

mod args;
mod asks;
mod attach;
mod demo;
mod events;
mod out;
mod policy;
mod promises;
mod review;
mod run;
mod tasks;
mod text;

use args::{Args, Verb};
use clap::Parser;
use engine::{Code, Engine, Error, Host};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("AIRLOCK_LOG").unwrap_or_else(|_| "error".into()))
        .init();
    let args = match Args::try_parse() {
        Ok(a) => a,
        Err(e) => {
            // Help and version are no errors; everything else is the usage code.
            let code = if e.use_stderr() { 2 } else { 0 };
            e.print().ok();
            return ExitCode::from(code);
        }
    };
    match engine::settle().and_then(|()| verb(args)) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            out::problem(&e.message);
            ExitCode::from(e.code.exit())
        }
    }
}

fn verb(args: Args) -> Result<u8, Error> {
    let host = Host::discover()?;
    let Some(verb) = args.verb else { return Err(window(&host)) };
    let open = || Engine::open(host.clone());
    match verb {
        Verb::Run(a) => run::run(&open()?, a),
        Verb::Demo(a) => demo::demo(&open()?, a.json),
        Verb::Repo(a) => tasks::repo(&open()?, a),
        Verb::Task(a) => tasks::task(&open()?, a),
        Verb::Events(a) => events::events(&open()?, &a),
        Verb::Export(a) => events::export(&open()?, &a),
        Verb::Ask(a) => asks::ask(&open()?, a),
        Verb::Grant(a) => asks::grant(&open()?, a),
        Verb::Preview(a) => tasks::preview(&open()?, &a),
        Verb::Diff(a) => review::diff(&open()?, &a),
        Verb::Review(a) => review::review(&open()?, &a),
        Verb::Apply(a) => review::apply(&open()?, a),
        Verb::Undo(a) => review::undo(&open()?, &a),
        Verb::Policy(a) => policy::policy(&open()?, &a),
        Verb::Doctor(a) => promises::doctor(&open()?, a.json),
    }
}

/// Becomes the window. Comes back only with an error.
fn window(host: &Host) -> Error {
    if host.var("DISPLAY").is_none_or(str::is_empty) && host.var("WAYLAND_DISPLAY").is_none_or(str::is_empty) {
        return Error::new(
            Code::Machine,
            "there is no display here for the window (neither DISPLAY nor WAYLAND_DISPLAY is set): `airlock demo` and `airlock --help` work in a terminal",
        );
    }
    #[expect(clippy::disallowed_methods, reason = "this process becomes the window; nothing is started beside it")]
    let e = std::process::Command::new(&host.programs.window).exec();
    let hint = if e.kind() == std::io::ErrorKind::NotFound {
        "it is not built or installed beside airlock: `npm start` builds it; `airlock --help` shows what works without it"
    } else {
        ""
    };
    Error::new(Code::Machine, format!("the window {} did not start: {e}; {hint}", host.programs.window.display()))
}
