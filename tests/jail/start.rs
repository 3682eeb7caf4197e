//! A start: what the command finds, and that nothing is left.

use crate::room::{PROMISED, Room, good};
use jail_plan::Status;

#[test]
fn a_command_runs_and_its_exit_code_comes_back() {
    let room = Room::new();
    let went = room.sh("echo out; echo err >&2; exit 7");
    assert_eq!((went.out.as_str(), went.err.as_str(), went.ended.exit), ("out\n", "err\n", Some(7)));
    let went = room.sh("kill -9 $$");
    assert_eq!((went.ended.exit, went.ended.signal), (None, Some(9)), "a signal is told as one");
}

#[test]
fn the_report_has_every_row_and_the_promises_are_full() {
    let room = Room::new();
    let running = room.start(&["/bin/true"], |_| ()).unwrap();
    for guarantee in PROMISED {
        assert_eq!(running.jail.report.status(guarantee), Some(&Status::Full), "{guarantee} must hold here");
    }
    for row in &running.jail.report.rows {
        assert!(
            row.status == Status::Full || row.status.reason().is_some_and(|r| !r.is_empty()),
            "{row:?} must say why it is not full"
        );
    }
    good(&running.finish());
}
