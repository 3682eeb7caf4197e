//! What a jail may take of the machine, as far as its own kernel limits go.

use crate::room::{Room, good};
use jail_plan::{Guarantee, Status};

#[test]
fn p8_it_runs_on_as_many_processors_as_the_plan_says_and_takes_none_back() {
    let room = Room::new();
    let mut plan = room.plan(&["/bin/sh", "-c", "nproc; taskset -p -c 0-1023 $$ 2>&1; taskset -c 0-1023 nproc 2>&1; nproc"]);
    plan.limits.cpus = Some(1);
    let running = room.start_plan(&plan, |_| ()).unwrap();
    assert_eq!(running.jail.report.status(Guarantee::Cpu), Some(&Status::Full));
    let went = running.finish();
    let lines: Vec<&str> = good(&went).lines().collect();
    assert_eq!((lines.first(), lines.last()), (Some(&"1"), Some(&"1")), "one processor, before and after: {went:?}");
    assert!(went.out.contains("Operation not permitted"), "the filter refuses the call: {went:?}");
}

#[test]
fn p8_no_file_gets_larger_than_the_disk_that_it_may_fill() {
    let mut room = Room::new();
    room.grants.disk = Some(1 << 20);
    let went = room.sh("head -c 3000000 /dev/zero > big; echo $?; stat -c %s big; truncate -s 3000000 sparse; stat -c %s sparse");
    let lines: Vec<&str> = went.out.lines().collect();
    assert_ne!(lines[0], "0", "the write fails: {went:?}");
    assert_eq!(lines[1..], ["1179648", "0"], "the file ends at the limit: {went:?}");
}
