//! A page of the sandbox in the person's own browser, from the window.

use crate::screen::{NewTask, add_repository, at, new_task, until_state, until_terminal_text};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use testkit::window::{Display, LIMIT, Window};
use testkit::{Sandbox, eventually};

#[test]
fn a_port_of_the_sandbox_is_opened_in_the_persons_browser() {
    let (person, display) = (Sandbox::new(), Display::start());
    let repo = person.small_repo();
    // Their browser, as far as a link goes.
    let browser = person.home().join(".local/bin/xdg-open");
    std::fs::create_dir_all(browser.parent().unwrap()).unwrap();
    std::fs::write(&browser, "#!/bin/sh\nprintf %s \"$1\" > ~/.opened; mv ~/.opened ~/opened\n").unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let window = Window::open(&person, &display);
    add_repository(&window, &repo.path);
    let script = "mkdir site; echo 'a page' > site/index.html; python3 -m http.server 3000 --bind 127.0.0.1 --directory site 2>log & \
                  until curl -s http://127.0.0.1:3000/ > /dev/null; do sleep 0.1; done; echo served; wait";
    new_task(&window, &NewTask { title: "Serve", command: script, ..NewTask::default() });
    until_terminal_text(&window, "served");
    window.click(&at("preview"));
    window.until_text(&at("preview-ports"), "took 3000");
    let value = |test: &str| {
        let script = format!("return document.querySelector(\"[data-test='{test}']\")?.value ?? ''");
        window.script(&script, vec![]).as_str().unwrap_or_default().to_owned()
    };
    eventually("the port is proposed", LIMIT, || (value("preview-port") == "3000").then_some(()));
    window.fill(&at("preview-port"), "99999");
    window.click(&at("preview-open"));
    window.until_text(&at("preview-wrong"), "from 1 to 65535");
    window.fill(&at("preview-port"), "3000");
    window.click(&at("preview-copy"));
    let link = eventually("a link to copy", LIMIT, || Some(value("preview-link")).filter(|l| l.contains("?airlock=")));
    std::thread::sleep(Duration::from_millis(400));
    for theme in ["dark", "light"] {
        window.script(&format!("document.documentElement.dataset.theme = '{theme}'"), vec![]);
        std::thread::sleep(Duration::from_millis(400));
        window.shot(&format!("preview-{theme}"));
    }
    window.click(&at("preview-open"));
    let opened = eventually("the browser is started", LIMIT, || std::fs::read_to_string(person.home().join("opened")).ok());
    let front = |link: &str| link.split('?').next().unwrap_or_default().to_owned();
    assert!(front(&opened) == front(&link) && opened != link, "a link of its own: {opened}");
    let host = front(&opened).trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (name, port) = host.rsplit_once(':').unwrap();
    let mut c = person.command("curl");
    c.args(["-sS", "-m", "20", "-L", "-b", "", "--resolve", &format!("{name}:{port}:127.0.0.1"), &opened]);
    let page = String::from_utf8_lossy(&c.output().unwrap().stdout).into_owned();
    assert_eq!(page.trim(), "a page");
    window.click(&at("stop"));
    until_state(&window, "ended");
}
