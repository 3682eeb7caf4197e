//! The real window on a display of its own, driven by WebDriver as a person drives it: by what is on screen.

use crate::{Sandbox, program, program::kept_dir};
use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long the window may take to show what is waited for; far above what it needs, so that only a hang is caught.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A display without a screen. Dropping it ends it.
pub struct Display {
    server: Child,
    name: String,
    memory: tempfile::TempDir,
}

impl Display {
    /// Starts an X server that picks a free display number itself.
    pub fn start() -> Self {
        let memory = tempfile::tempdir().expect("a temporary directory");
        let mut server = std::process::Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1440x900x24", "-nolisten", "tcp", "-noreset", "-fbdir"])
            .arg(memory.path())
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb is installed (Debian: xvfb)");
        let mut line = String::new();
        let out = server.stdout.take().expect("stdout is a pipe");
        BufReader::new(out).read_line(&mut line).expect("Xvfb tells its display");
        Self { name: format!(":{}", line.trim()), server, memory }
    }

    /// `DISPLAY`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

/// The open window with its driver. Dropping it ends both.
pub struct Window {
    screen: PathBuf,
    runtime: tokio::runtime::Runtime,
    client: Client,
    driver: Child,
    app: i32,
}

impl Window {
    /// Opens the window for this person.
    pub fn open(person: &Sandbox, display: &Display) -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a free port").port();
        let before = person.processes("airlock-window");
        let mut driver = person
            .command("WebKitWebDriver")
            .args([format!("--port={port}"), "--host=127.0.0.1".into()])
            .env("DISPLAY", display.name())
            .env("GDK_BACKEND", "x11")
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            // Without a GPU the default path drops to a few frames a second.
            .env("WEBKIT_DISABLE_DMABUF_RENDERER", "1")
            // Keeps toolkit and webview from starting buses that outlive the test.
            .env("DBUS_SESSION_BUS_ADDRESS", "disabled:")
            .env("NO_AT_BRIDGE", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("WebKitWebDriver is installed (Debian: webkit2gtk-driver)");
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(start.elapsed() < LIMIT, "WebKitWebDriver does not listen");
            assert!(driver.try_wait().expect("a child can be asked").is_none(), "WebKitWebDriver ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let caps = json!({
            "browserName": "wry",
            "webkitgtk:browserOptions": { "binary": program("airlock-window"), "args": [] },
        });
        let caps = caps.as_object().expect("an object").clone();
        let url = format!("http://127.0.0.1:{port}");
        let client = runtime.block_on(async { ClientBuilder::new(HttpConnector::new()).capabilities(caps).connect(&url).await });
        let client = client.unwrap_or_else(|e| panic!("the window does not open for WebDriver: {e}"));
        let app = person.processes("airlock-window").into_iter().find(|p| !before.contains(p));
        let app = app.expect("the window has a process");
        Self { screen: display.memory.path().join("Xvfb_screen0"), runtime, client, driver, app }
    }

    /// Process id of the window.
    pub fn pid(&self) -> i32 {
        self.app
    }

    /// Kills the window with SIGKILL and waits until it is gone.
    pub fn kill(self) {
        kill(Pid::from_raw(self.app), Signal::SIGKILL).expect("the window runs");
        crate::eventually("the window is gone", LIMIT, || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.app)).unwrap_or_default();
            // A zombie is dead; its parent, the driver, may reap it later.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')).then_some(())
        });
    }

    /// Waits for an element; CSS.
    #[track_caller]
    pub fn find(&self, css: &str) -> Element {
        self.wait_for(Locator::Css(css), css)
    }

    /// Waits for an element; XPath.
    #[track_caller]
    pub fn find_x(&self, xpath: &str) -> Element {
        self.wait_for(Locator::XPath(xpath), xpath)
    }

    #[track_caller]
    fn wait_for(&self, locator: Locator<'_>, name: &str) -> Element {
        let found = self.runtime.block_on(self.client.wait().at_most(LIMIT).for_element(locator));
        found.unwrap_or_else(|e| panic!("the window must show {name}: {e}\n{}", self.seen()))
    }

    /// Whether an element is there now; CSS.
    pub fn has(&self, css: &str) -> bool {
        self.runtime.block_on(self.client.find(Locator::Css(css))).is_ok()
    }

    /// Waits for a button that can be pressed, by the text on it or its label, and presses it.
    #[track_caller]
    pub fn press(&self, name: &str) {
        let quoted = quote(name);
        let xpath = format!(
            "//*[(self::button or @role='button' or @role='tab' or @role='menuitem')][not(@disabled)]\
             [normalize-space(.)={quoted} or @aria-label={quoted} or @title={quoted}]"
        );
        self.click_on(|| self.find_x(&xpath), name);
    }

    /// Waits for an element and clicks it; CSS.
    #[track_caller]
    pub fn click(&self, css: &str) {
        self.click_on(|| self.find(css), css);
    }

    #[track_caller]
    fn click_on(&self, find: impl Fn() -> Element, name: &str) {
        // What is drawn anew between finding and clicking is found again.
        let start = Instant::now();
        loop {
            let element = find();
            match self.runtime.block_on(element.click()) {
                Ok(()) => return,
                Err(e) => assert!(start.elapsed() < LIMIT, "{name} can't be clicked: {e}\n{}", self.seen()),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Replaces a field's text; CSS.
    #[track_caller]
    pub fn fill(&self, css: &str, text: &str) {
        let field = self.find(css);
        let done = self.runtime.block_on(async {
            field.clear().await?;
            // The driver refuses to type nothing.
            if text.is_empty() { Ok(()) } else { field.send_keys(text).await }
        });
        done.unwrap_or_else(|e| panic!("{css} takes no text: {e}\n{}", self.seen()));
    }

    /// Types into what has the focus of this element; CSS.
    #[track_caller]
    pub fn type_into(&self, css: &str, text: &str) {
        let field = self.find(css);
        self.runtime.block_on(field.send_keys(text)).unwrap_or_else(|e| panic!("{css} takes no keys: {e}\n{}", self.seen()));
    }

    /// Waits until the text on screen (of everything, or of an element) holds this.
    #[track_caller]
    pub fn until_text(&self, css: &str, text: &str) {
        let start = Instant::now();
        loop {
            let shown = self.text(css);
            if shown.contains(text) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{css} must show {text:?}, it shows {shown:?}\n{}", self.seen());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Text of an element now, empty where it is not there; CSS.
    pub fn text(&self, css: &str) -> String {
        self.script("return document.querySelector(arguments[0])?.innerText ?? ''", vec![css.into()])
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Runs a script in the page, to read what is there.
    #[track_caller]
    pub fn script(&self, script: &str, args: Vec<Value>) -> Value {
        let answer = self.runtime.block_on(self.client.execute(script, args));
        answer.unwrap_or_else(|e| panic!("the page does not answer {script:?}: {e}"))
    }

    /// A picture of the window as `target/shots/NAME.png`.
    pub fn shot(&self, name: &str) -> PathBuf {
        let path = kept_dir("shots").join(format!("{name}.png"));
        crate::framebuffer::save(&self.screen, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// For messages: the text of the whole page, and a picture.
    fn seen(&self) -> String {
        let shot = self.shot(&format!("failed-{}-{}", std::process::id(), self.app));
        format!("picture: {}\n--- page\n{}", shot.display(), self.text("body"))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // The window has no part in this that matters: the driver's whole group goes.
        let close = async { tokio::time::timeout(Duration::from_secs(5), self.client.clone().close()).await };
        drop(self.runtime.block_on(close));
        let _ = killpg(Pid::from_raw(i32::try_from(self.driver.id()).expect("a process id")), Signal::SIGKILL);
        drop(self.driver.wait());
    }
}

/// An XPath string literal.
fn quote(text: &str) -> String {
    if text.contains('\'') { format!("\"{text}\"") } else { format!("'{text}'") }
}
