//! Storms of calls of which the watcher is told: they end, they stall nobody else, and what is told stays bounded.

use crate::room::Room;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::eventually;

const STORMS: [(&str, &str); 7] = [
    ("argv", "arguments and paths that can't be read, or end where their page ends"),
    ("long-argv", "arguments as long as the kernel takes"),
    ("vfork", "programs started by vfork, whose parent waits"),
    ("killed", "callers that are killed while they wait for their answer"),
    ("signals", "callers that are interrupted five thousand times a second"),
    ("flood", "as many calls as eight processes can make"),
    ("exec-of-others", "programs that become others while their children call"),
];

#[test]
fn p6_no_storm_of_calls_stalls_whoever_watches() {
    let storm = crate::compile::program("storm");
    let mut held = 0;
    for (attack, why) in STORMS {
        let scratch = tempfile::tempdir().unwrap();
        let outside =
            Command::new(&storm).args([attack, "60"]).current_dir(scratch.path()).stdin(Stdio::null()).output().unwrap();
        assert!(String::from_utf8_lossy(&outside.stdout).contains("through"), "{attack} outside: {outside:?}");

        let room = Room::new();
        fs::copy(&storm, room.task.tree().join("hostile")).unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let running = room
            .start(
                &["/bin/sh", "-c", "touch begun; ./hostile \"$0\" 60 && touch through; ./hostile \"$0\" 1000000", attack],
                move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                },
            )
            .unwrap();
        // While it rages, and its end is out of sight, another one starts, works and ends.
        let through = room.task.tree().join("through");
        eventually("the storm gets its answers", Duration::from_secs(120), || through.exists().then_some(()));
        let other = Room::new();
        let went = other.sh("for i in 1 2 3; do /bin/true; echo x > file$i; done; echo done");
        assert_eq!(went.out, "done\n", "{attack} ({why}): another jail: {went:?}");
        assert!(running.jail.freeze(), "{attack}: it can be stopped");
        running.jail.thaw();
        running.jail.kill();
        assert_eq!(running.jail.wait().unwrap().signal, Some(9), "{attack}: and ended");
        assert!(told.load(Ordering::SeqCst) > 0, "{attack}: what it did was told");
        held += 1;
    }
    println!("attacks: {held} controls succeeded, {held} held inside ({}; 0 without a control here)", testkit::wait::column());
}
