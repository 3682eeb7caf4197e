//! The window of Airlock: a thin app over the engine.
//!
//! Invariant: nothing here decides; the page asks, an engine verb answers, and each command has its own permission.

mod app;
mod commands;
mod setup;
mod terminal;
mod views;
mod wire;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

/// Without a GPU WebKit's DMA-BUF renderer draws in software at a tenth of the speed (8 against 60 frames a second, measured).
const NO_DMABUF: &str = "WEBKIT_DISABLE_DMABUF_RENDERER";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--bindings") => {
            use std::io::Write;
            let written = std::io::stdout().write_all(wire::bindings::typescript().as_bytes());
            return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(7) };
        }
        Some("--version") => {
            use std::io::Write;
            let written = writeln!(std::io::stdout(), "airlock-window {}", env!("CARGO_PKG_VERSION"));
            return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(7) };
        }
        _ => {}
    }
    if !Path::new("/dev/dri").exists() && std::env::var_os(NO_DMABUF).is_none() {
        // The environment can't be changed in place once a thread may run, so the program starts anew with it.
        #[expect(clippy::disallowed_methods, reason = "this program itself, before anything else runs")]
        let failed = std::process::Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env(NO_DMABUF, "1").exec();
        tracing::warn!(error = %failed, "the window starts with the slow renderer");
    }
    // The toolkit panics where it finds no display; a person is told in words instead.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.to_string().contains("initialize gtk") {
            let words = "airlock-window: there is no display here that a window could open on (DISPLAY, WAYLAND_DISPLAY): `airlock demo` works in a terminal\n";
            std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes()).ok();
            std::process::exit(7);
        }
        before(panic);
    }));
    if let Err(e) = engine::settle() {
        tracing::warn!(error = %e.message, "what the starter handed on stays");
    }
    match setup::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            #[expect(clippy::print_stderr, reason = "there is no window to say it in")]
            {
                eprintln!("airlock-window: the window could not be opened: {e}");
            }
            ExitCode::from(7)
        }
    }
}
