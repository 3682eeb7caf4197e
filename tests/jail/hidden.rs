//! Hidden places: told at a touch, and closed.

use crate::room::{Room, good};
use jail_plan::{Guarantee, Status};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{eventually, not_tested_here};

#[test]
fn a_touch_of_ssh_is_refused_and_told_even_where_the_person_has_none() {
    for has_one in [true, false] {
        let room = Room::new();
        if !has_one {
            fs::remove_dir_all(room.home.join(".ssh")).unwrap();
        }
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = {
            let told = Arc::clone(&told);
            move |fact| told.lock().unwrap().push(format!("{fact:?}"))
        };
        let script = "cat ~/.ssh/id_ed25519; ls ~/.ssh; echo x > ~/.ssh/authorized_keys; [ -d ~/.ssh ] && echo there";
        let running = room.start(&["/bin/sh", "-c", script], sink).unwrap();
        let decoys = running.jail.report.status(Guarantee::Decoys).unwrap();
        if *decoys != Status::Full {
            assert!(decoys.reason().is_some_and(|r| r.contains("/dev/fuse")), "only that may be missing: {decoys:?}");
            not_tested_here("/dev/fuse");
        }
        let told_here = running.jail.report.status(Guarantee::Decoys) == Some(&Status::Full);
        let went = running.finish();
        assert_eq!(went.out, "there\n", "nothing of it may be read: {went:?}");
        assert_eq!(went.err.matches("ermission denied").count(), 3, "each touch is refused: {went:?}");
        if told_here {
            eventually("a fact about the touch", Duration::from_secs(10), || {
                told.lock().unwrap().iter().any(|f| f.contains("id_ed25519")).then_some(())
            });
        }
        good(&went);
    }
}
