//! The warden: the one process outside a jail that owns a run from start to end. It survives the window.
//!
//! `airlock-warden run` reads a [`model::run::RunSpec`] from stdin and answers with one line on stdout.
//! `airlock-warden caches` copies caches in the background. `airlock-warden keeper …` is what a keeper's jail executes.

mod asks;
mod caches;
mod clients;
mod doors;
mod gate;
mod hold;
mod limits;
mod output;
mod previews;
mod raise;
mod reading;
mod record;
mod refusal;
mod room;
mod run;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_ref().and_then(|a| a.to_str()) {
        Some("run") => {
            tracing_subscriber::fmt()
                .with_writer(std::io::stderr)
                .with_ansi(false)
                // A full disk must not end the run: the note is lost, the run is not.
                .log_internal_errors(false)
                .with_env_filter(tracing_subscriber::EnvFilter::new("info"))
                .init();
            run::main()
        }
        Some("caches") => caches::copy(),
        Some("keeper") => {
            let args: Vec<_> = args.collect();
            let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
            let code =
                worktree::Places::named(&args).map_or(2, |(places, job)| worktree::keeper_main(job, &places, &mut out, &mut err));
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
        _ => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            tracing::error!("airlock-warden is started by airlock; there is nothing to run by hand");
            ExitCode::from(2)
        }
    }
}
