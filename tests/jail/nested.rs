//! Namespaces inside, for browsers that bring a sandbox of their own.

use crate::room::{PROMISED, Room, Went, good};
use jail_plan::{Guarantee, Status};
use std::fs;
use testkit::{agent, not_tested_here, program};

const CHROMIUM: &str = "/usr/bin/chromium";
/// What the page says only after its script ran, in a renderer.
const PAGE: &str = "<p id=p>before</p><script>document.getElementById('p').textContent = 'sum ' + (40 + 2)</script>";

fn browser_room(nested: bool) -> Option<Room> {
    if !std::path::Path::new(CHROMIUM).exists() {
        not_tested_here("chromium");
        return None;
    }
    let mut room = Room::new();
    room.grants.nested = nested;
    room.grants.processes = 1024;
    fs::write(room.task.tree().join("page.html"), PAGE).unwrap();
    Some(room)
}

fn dump(room: &Room) -> Went {
    room.sh("exec chromium --headless=new --dump-dom \"file://$PWD/page.html\"")
}

#[test]
fn chromium_prints_a_page_with_its_sandbox_on() {
    let Some(room) = browser_room(true) else { return };
    let went = dump(&room);
    assert!(good(&went).contains(">sum 42<"), "the page's script must have run: {went:?}");
}

#[test]
fn without_nested_chromium_says_what_it_lacks() {
    let Some(room) = browser_room(false) else { return };
    let went = dump(&room);
    assert!(went.ended.exit != Some(0) && !went.out.contains("sum 42"), "there is no sandbox for it to build: {went:?}");
    assert!(went.err.contains("No usable sandbox"), "and its own words lead to policies/README.md: {went:?}");
}

#[test]
fn playwright_drives_chromium_with_its_sandbox_on() {
    let Some(mut room) = browser_room(true) else { return };
    let driver = agent::npm_cache("playwright-core", &program::checkout().join("tests/fixtures/browsers/playwright-core"));
    room.grants.read = vec![driver.join("node_modules")];
    let script = format!(
        "const {{ chromium }} = require('{}/node_modules/playwright-core');
        (async () => {{
            const browser = await chromium.launch({{ executablePath: '{CHROMIUM}', chromiumSandbox: true }});
            const page = await browser.newPage();
            await page.goto('file://' + process.cwd() + '/page.html');
            console.log(await page.textContent('#p'));
            await page.goto('chrome://sandbox');
            console.log((await page.textContent('body')).replace(/\\s+/g, ' '));
            await browser.close();
        }})().catch(e => {{ console.error(e); process.exit(1); }});",
        driver.display()
    );
    fs::write(room.task.tree().join("drive.js"), script).unwrap();
    let went = room.sh("exec node drive.js");
    let said = good(&went);
    assert!(said.starts_with("sum 42\n"), "{went:?}");
    assert!(said.contains("You are adequately sandboxed"), "by the browser's own word: {went:?}");
}

#[test]
fn p10_nested_is_told_and_costs_what_it_says_and_no_more() {
    let mut room = Room::new();
    room.grants.nested = true;
    let running = room.start(&["/bin/true"], |_| ()).unwrap();
    let report = running.jail.report.clone();
    running.finish();
    let syscalls = report.status(Guarantee::Syscalls).unwrap();
    assert!(
        matches!(syscalls, Status::Partial { reason } if reason.contains("jail.nested") && reason.contains("capabilities")),
        "the loss is told with its name: {syscalls:?}"
    );
    for promised in PROMISED.into_iter().filter(|g| *g != Guarantee::Syscalls) {
        assert_eq!(report.status(promised), Some(&Status::Full), "{promised} is kept");
    }
    room.grants.nested = false;
    let running = room.start(&["/bin/true"], |_| ()).unwrap();
    let without = running.jail.report.clone();
    running.finish();
    assert_eq!(without.status(Guarantee::Syscalls), Some(&Status::Full), "without it nothing is lost");
    let second_lock = report.row(Guarantee::Landlock).unwrap();
    assert_eq!(Some(second_lock), without.row(Guarantee::Landlock), "the second lock is what it is without");
    let abi: Option<u32> = second_lock.how.strip_prefix("Landlock ABI ").map(|n| n.parse().unwrap());
    match (&second_lock.status, abi) {
        (Status::Full, Some(6..)) | (Status::Partial { .. }, Some(1..6)) | (Status::Absent { .. }, None) => {}
        other => panic!("it is what this kernel's version gives: {other:?}"),
    }
}

#[test]
fn p6_root_in_a_namespace_of_its_own_moves_no_wall() {
    let mut room = Room::new();
    room.grants.nested = true;
    room.bring_probe();
    let inside = room.root.join("outside");
    fs::write(&inside, "x").unwrap();
    let went = room.sh(&format!(
        "own() {{ unshare --user --map-root-user --net --pid --fork \"$@\"; }}
         own sh -c 'id -u; grep CapEff /proc/self/status | grep -q 0000000000000000 || echo capable'
         tried() {{ own \"$@\" >/dev/null 2>&1 && echo \"worked: $*\"; }}
         tried mount -t tmpfs none /tmp
         tried mount --bind /tmp /var/tmp
         tried umount /tmp
         tried umount -l /proc/sys
         tried sh -c 'echo 5 > /proc/sys/user/max_user_namespaces'
         tried sh -c 'echo x > /usr/there'
         tried cat {outside}
         tried mknod /tmp/kmsg c 1 11
         tried chroot /proc/1/root cat {outside}
         tried nsenter --target 1 --mount true
         tried unshare --mount true
         tried unshare --ipc true
         tried unshare --uts true
         tried unshare --cgroup true
         own perl -MSocket -e 'print socket(my $s, AF_INET, SOCK_RAW, 6) ? \"ok\\n\" : \"refused $!\\n\"'; own ./probe family 17; own ./probe netlink 12",
        outside = inside.display()
    ));
    let lines: Vec<&str> = good(&went).lines().collect();
    assert_eq!(lines[..2], ["0", "capable"], "it is root there, or nothing is shown: {went:?}");
    assert_eq!(lines.len(), 5, "nothing else may work: {went:?}");
    assert!(lines[2..].iter().all(|l| l.starts_with("refused")), "raw, packet and netfilter sockets: {went:?}");
}

#[test]
fn p6_namespaces_are_few_and_without_nested_there_are_none() {
    let mut room = Room::new();
    let count = "n=0; while [ $n -lt 100 ]; do rm -f /tmp/made; unshare --user sh -c ': > /tmp/made; sleep 1000' & \
                 until [ -e /tmp/made ]; do kill -0 $! || break; sleep 0.02; done; \
                 [ -e /tmp/made ] || break; n=$((n+1)); done 2>/dev/null; echo $n";
    assert_eq!(good(&room.sh(count)), "0\n", "none");
    room.grants.nested = true;
    let many: u32 = good(&room.sh(count)).trim().parse().unwrap();
    assert!((4..=32).contains(&many), "some, and few: {many}");
}
