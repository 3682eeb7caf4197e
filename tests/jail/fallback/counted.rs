//! What a jail without namespaces writes is counted, also where it closes itself to looks.

use super::here;
use crate::room::Room;
use std::io::Write as _;
use std::sync::mpsc::channel;
use std::time::Duration;
use supervise::limits::{Bounds, Reached, Watch};
use supervise::who::{JailRef, Who};

/// Writes into a file without a name, after it closed itself as its words say.
const WRITER: &str = r#"
import ctypes, os, sys, time
if sys.argv[1] == "closed": assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
f = open("f", "wb")
os.unlink("f")
for _ in range(int(sys.argv[2])):
    f.write(bytes(4 << 20)); f.flush(); os.fsync(f.fileno()); time.sleep(0.2)
time.sleep(4)
"#;

/// What is told of the disk while that runs, and `beside` something else.
fn told(words: &[&str], beside: impl FnOnce(&Room)) -> Vec<String> {
    let room = Room::new();
    std::fs::write(room.task.tree().join("writer.py"), WRITER).unwrap();
    let argv: Vec<&str> = ["/usr/bin/env", "python3", "writer.py"].iter().chain(words).copied().collect();
    let bare = room.start_bare(&room.bare_plan(&argv)).unwrap();
    let pid = bare.running.jail.pid;
    let who = Who::new(JailRef { init_pid: u32::try_from(pid).unwrap(), ..JailRef::default() }).unwrap();
    let bounds = Bounds {
        memory: 1 << 40,
        processes: 1000,
        open_files: 1000,
        disk: 16 << 20,
        places: vec![room.task.tree()],
        held: false,
    };
    let (tell, heard) = channel();
    let telling = move |reached: Reached| {
        drop(tell.send(reached));
        false
    };
    let watch = Watch::start(pid, None, bounds, who, None, telling).unwrap();
    beside(&room);
    drop(bare.running.finish());
    drop(watch);
    heard.into_iter().filter(|reached| reached.limit == "disk").map(|reached| reached.detail).collect()
}

#[test]
fn p8_files_of_a_process_that_closed_itself_count() {
    if !here() {
        return;
    }
    for how in ["open", "closed"] {
        let told = told(&[how, "15"], |_| ());
        let said = told.first().unwrap_or_else(|| panic!("{how}: 60 MiB are more than 16 MiB"));
        assert_eq!(said.contains("part of it could not be counted"), how == "closed", "{said}");
    }
}

#[test]
fn p8_what_others_write_does_not_count_though_guards_are_closed() {
    if !here() {
        return;
    }
    let told = told(&["open", "1"], |room| {
        let mut file = std::fs::File::create(room.root.join("others")).unwrap();
        for _ in 0..15 {
            file.write_all(&vec![7; 4 << 20]).unwrap();
            file.sync_all().unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    assert!(told.is_empty(), "{told:?}");
}
