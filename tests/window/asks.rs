//! What a policy asks about, as a person meets it: held, shown, answered, taken back.

use crate::screen::{NewTask, add_repository, at, new_task, selected_task, type_in_terminal, until_state, until_terminal_text};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::window::{Display, LIMIT, Window};
use testkit::{Sandbox, eventually};

/// A web server of the test's, which counts whom it served. `/drip` goes on until the other side hangs up.
fn server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, served) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&served);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || serve(stream));
        }
    });
    (at, served)
}

fn serve(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let n = stream.read(&mut request).unwrap_or(0);
    let drip = request[..n].starts_with(b"GET /drip");
    let head =
        if drip { "HTTP/1.1 200 OK\r\n\r\n" } else { "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved" };
    let mut open = stream.write_all(head.as_bytes()).is_ok();
    while drip && open {
        open = stream.write_all(b"drip\n").is_ok();
        std::thread::sleep(Duration::from_millis(20));
    }
}

const GET: &str = "curl -sS -m 55 http://model.test";

/// A key for the window itself, wherever the focus is, unless the terminal has it.
fn key(window: &Window, key: &str) {
    window.type_into("body", key);
}

fn theme(window: &Window, theme: &str) {
    window.click(&at(&format!("theme-{theme}")));
    window.find(&format!("html[data-theme='{theme}']"));
}

/// Time to draw, so that a picture shows what is in the page.
fn frame() {
    std::thread::sleep(Duration::from_millis(400));
}

fn shots(window: &Window, name: &str) {
    for of in ["dark", "light"] {
        theme(window, of);
        // On an ask its buttons take the focus back.
        if window.has(&at("answer")) {
            key(window, "a");
        }
        frame();
        window.shot(&format!("{name}-{of}"));
    }
}

/// Waits until the ask on screen can be answered.
fn armed(window: &Window) {
    window.find(&format!("{}[data-armed='true']", at("answer")));
}

#[test]
fn p4_a_held_connection_is_answered_in_the_window_and_taken_back_there() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    let (server, served) = server();
    person.file(
        "config/airlock/policies/asks.toml",
        &format!(
            "version = 1\nname = \"asks\"\n[network]\ndefault = \"ask\"\nhold = \"60s\"\n\
             [[network.rule]]\nhost = \"model.test\"\nports = [80]\naddress = \"{server}\"\ndecision = \"ask\"\nreason = \"a server of the test’s\"\n"
        ),
    );
    let served = || served.load(Ordering::SeqCst);
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    let script = format!(
        "echo ready; read go; {GET}/; echo \" came\"; {GET}/drip -N -o drips; echo \"drip ended with $?\"; read go; \
         curl -sS -m 55 http://other.test/; echo \"other ended with $?\"; read go"
    );
    new_task(&window, &NewTask { title: "Ask me", command: &script, policy: Some("asks"), ..NewTask::default() });
    until_terminal_text(&window, "ready");
    type_in_terminal(&window, "go\u{E007}");

    // Held: told in words, counted on the task, announced; the terminal keeps the focus.
    let task = selected_task(&window);
    let badge = format!("{}[data-task='{task}'] .badge", at("task"));
    window.find(&badge);
    assert_eq!(window.text(&badge).trim().chars().next(), Some('1'));
    window.until_text(&at("held"), "curl wants model.test:80");
    window.until_text(&at("announce"), "model.test:80");
    let focused = |window: &Window| {
        window.script("return document.activeElement?.dataset?.test ?? document.activeElement?.className ?? ''", vec![])
    };
    assert_eq!(focused(&window), Value::from("terminal-input"), "a new ask takes no focus");
    assert_eq!(served(), 0, "nothing left before the answer");
    shots(&window, "ask-held");
    type_in_terminal(&window, "a");
    assert!(!window.has(&at("inbox-view")), "what is typed in the terminal is the jail's");
    type_in_terminal(&window, "\u{E003}");

    // Opened by its key; nothing is armed at once, and Deny has the focus.
    window.click(&at("tab-activity"));
    window.find(&format!("{}.held", at("event")));
    frame();
    window.shot("ask-activity");
    key(&window, "a");
    window.find(&at("ask-detail"));
    assert_eq!(focused(&window), Value::from("deny"));
    key(&window, "o");
    for (place, words) in [
        ("ask-what", "model.test:80"),
        ("ask-detail", "/usr/bin/curl"),
        ("ask-detail", "a system program"),
        ("ask-says", "http://model.test/"),
        ("ask-source", "asks.toml:"),
        ("ask-detail", "a server of the test’s"),
        ("ask-held", "Held"),
        ("allows", "Every program of this task may connect to model.test:80 until"),
    ] {
        window.until_text(&at(place), words);
    }
    assert_eq!(served(), 0, "a key right after it appeared answers nothing");
    armed(&window);
    shots(&window, "ask-inbox");
    armed(&window);
    window.click(&at("allow-longer"));
    window.until_text(&at("nothing-waits"), "Nothing waits");
    window.click(&at("task"));
    window.click(&at("tab-terminal"));
    until_terminal_text(&window, "served came");
    eventually("the drip lives by the same grant", LIMIT, || (served() == 2).then_some(()));

    // Taken back: what lives by it ends.
    window.click(&at("inbox"));
    window.click(&at("inbox-list-grants"));
    window.find(&format!("{}[data-state='Live']", at("grant")));
    shots(&window, "ask-grants");
    window.click(&at("revoke"));
    window.until_text(&at("revoked"), "1 connection was closed");
    window.find(&format!("{}[data-state='Revoked']", at("grant")));
    frame();
    window.shot("ask-revoked");
    window.click(&at("task"));
    until_terminal_text(&window, "drip ended with ");

    // Another one is denied, by key.
    type_in_terminal(&window, "go\u{E007}");
    window.until_text(&at("held"), "curl wants other.test:80");
    window.click(&at("held-open"));
    window.until_text(&at("ask-what"), "other.test:80");
    armed(&window);
    key(&window, "d");
    window.until_text(&at("nothing-waits"), "Nothing waits");
    window.until_text(&at("past"), "Denied");
    shots(&window, "ask-none");
    window.click(&at("task"));
    until_terminal_text(&window, "other ended with ");
    assert!(!crate::screen::terminal(&window).contains("other ended with 0"), "curl was refused");
    assert_eq!(served(), 2, "nothing of a denied connection left");
    window.click(&at("tab-activity"));
    for words in ["allowed for the task", "taken back", "denied for the rest"] {
        window.fill(&at("events-filter"), words);
        window.find(&format!("{}[data-kind='decision']", at("event")));
    }
    window.fill(&at("events-filter"), "answer");
    frame();
    window.shot("ask-decided");
    window.click(&at("stop"));
    until_state(&window, "ended");
}

#[test]
fn p2_a_hidden_place_and_a_limit_are_opened_in_the_window() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    std::fs::create_dir(person.home().join(".tool")).unwrap();
    std::fs::write(person.home().join(".tool/config"), "colour = blue\n").unwrap();
    person.file(
        "config/airlock/policies/doors.toml",
        "version = 1\nname = \"doors\"\n[files]\nhide = [{ path = \"~/.tool\", on_touch = \"ask\" }]\n[network]\ndefault = \"deny\"\n\
         [limits]\nwall = \"90s\"\n",
    );
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    let script = "echo ready; read go; until cat ~/.tool/config; do read go; done; echo seen; read go";
    new_task(&window, &NewTask { title: "Look", command: script, policy: Some("doors"), ..NewTask::default() });
    until_terminal_text(&window, "ready");
    type_in_terminal(&window, "go\u{E007}");
    window.until_text(&at("held"), "Asked: cat wants to read ~/.tool/config");
    until_terminal_text(&window, "Permission denied");
    window.click(&at("held-open"));
    for (place, words) in [
        ("ask-what", "~/.tool/config"),
        ("ask-detail", "What is read here can leave through every host that the run may reach."),
        ("ask-held", "Waits since"),
        ("ask-source", "doors.toml:4"),
        ("allows", "Every program of this task may read ~/.tool/config until"),
    ] {
        window.until_text(&at(place), words);
    }
    armed(&window);
    shots(&window, "ask-read");
    armed(&window);
    window.click(&at("allow-longer"));
    window.until_text(&at("nothing-waits"), "Nothing waits");
    window.click(&at("task"));
    window.click(&at("tab-terminal"));
    type_in_terminal(&window, "go\u{E007}");
    until_terminal_text(&window, "colour = blue");
    until_terminal_text(&window, "seen");

    // Half of its time is over: the run asks for as much again.
    window.until_text(&at("held"), "Asked: the run wants to raise limits.wall to 3m");
    window.click(&at("held-open"));
    for (place, words) in [
        ("ask-what", "limits.wall to 3m"),
        ("ask-detail", "The run as a whole."),
        ("allows", "Each run of this task that comes to limits.wall goes on with 3m"),
    ] {
        window.until_text(&at(place), words);
    }
    armed(&window);
    shots(&window, "ask-raise");
    armed(&window);
    window.click(&at("allow-once"));
    window.until_text(&at("nothing-waits"), "Nothing waits");
    window.click(&at("task"));
    type_in_terminal(&window, "go\u{E007}");
    until_state(&window, "ended");
}
