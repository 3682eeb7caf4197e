//! A jail that presses its decoys in every way slows nobody else, and can be stopped and ended as ever.

use crate::decoys::{Told, watched};
use crate::room::Room;
use model::event::FileOp;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;
use supervise::fact::Fact;
use testkit::eventually;

const WAIT: Duration = Duration::from_secs(60);

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(2, Into::into)
}

/// A jail of which all processors touch decoys, by odd names, for ever.
fn hammer(room: &Room) -> Option<(crate::room::Running, Told)> {
    room.bring_probe();
    let place = room.home.join(".ssh");
    let threads = (cpus() * 4).to_string();
    let (running, told) = watched(room, &["./probe", "touch", place.to_str().unwrap(), &threads, "1000000000", "*"])?;
    eventually("the first touches", WAIT, || (told.touches().len() > 10).then_some(()));
    Some((running, told))
}

#[test]
fn p2_touches_of_odd_names_are_all_told_or_counted() {
    let room = Room::new();
    room.bring_probe();
    let place = room.home.join(".aws");
    let threads = cpus() * 2;
    let argv = ["./probe", "touch", place.to_str().unwrap(), &threads.to_string(), "600", "*"];
    let Some((running, told)) = watched(&room, &argv) else { return };
    let went = running.finish();
    let tried = threads * 600;
    assert_eq!(went.out, format!("ok {tried}\n"), "each is refused: {went:?}");
    // A name that is too long is refused by the kernel, which asks nobody.
    let too_long = u64::try_from(tried / 6).unwrap();
    let seen: u64 = told.touches().iter().map(|(.., count)| count).sum::<u64>() + told.folded();
    let tried = u64::try_from(tried).unwrap();
    assert!(seen == tried || seen == tried - too_long, "{seen} of {tried} are told or counted");
    let names: Vec<String> = told.touches().into_iter().map(|(path, ..)| path).collect();
    assert!(names.iter().any(|n| n.starts_with("~/.aws/a\\x0ab")), "as text: {names:?}");
    assert!(names.iter().any(|n| n.starts_with("~/.aws/\\xff\\xfe")), "as text: {names:?}");
}

#[test]
fn p6_a_jail_that_hammers_its_decoys_hides_nothing_of_another() {
    let (loud, quiet) = (Room::new(), Room::new());
    let Some((hammering, _)) = hammer(&loud) else { return };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do cat ~/.aws/$i; echo $i > made$i; done; true";
    let Some((running, told)) = watched(&quiet, &["/bin/bash", "-c", script]) else { return };
    let went = running.finish();
    assert_eq!((went.ended.exit, went.err.matches("ermission denied").count()), (Some(0), 10), "{went:?}");
    for i in 1..=10 {
        let rows: Vec<_> = told.touches().into_iter().filter(|(p, ..)| *p == format!("~/.aws/{i}")).collect();
        assert_eq!(rows, [(format!("~/.aws/{i}"), FileOp::Read, "cat".to_owned(), 1)], "each touch is told with its process");
    }
    let facts = told.facts();
    let made = |i: usize| facts.iter().any(|f| matches!(f, Fact::File { path, .. } if path.to_string() == format!("made{i}")));
    let unread = facts.iter().filter(|f| matches!(f, Fact::Unreadable { .. })).count();
    let seen = (1..=10).filter(|i| made(*i)).count();
    assert!(seen + unread >= 10, "each call is answered and told: {seen} named, {unread} without: {facts:?}");
    let execs = facts.iter().filter(|f| matches!(f, Fact::Exec { process } if process.program.to_string() == "cat")).count();
    assert_eq!(execs, 10, "every program that was started: {facts:?}");
    assert_eq!(told.folded(), 0, "and nothing was only counted");
    hammering.jail.kill();
    assert_eq!(hammering.jail.wait().unwrap().signal, Some(9));
}

#[test]
fn p6_a_jail_that_hammers_its_decoys_still_has_its_own_calls_answered() {
    let room = Room::new();
    room.bring_probe();
    let place = room.home.join(".ssh").display().to_string();
    let script = format!(
        "./probe touch {place} 8 1000000000 '*' & for i in $(seq 20); do echo $i > made$i; cat /dev/null; done; kill -9 $!; wait; exit 0"
    );
    let Some((running, told)) = watched(&room, &["/bin/bash", "-c", &script]) else { return };
    let went = running.finish();
    assert_eq!(went.ended.exit, Some(0), "{went:?}");
    let facts = told.facts();
    let execs = facts.iter().filter(|f| matches!(f, Fact::Exec { process } if process.program.to_string() == "cat")).count();
    assert_eq!(execs, 20, "each call was served within its deadline, or let through: none is lost");
    assert!(told.count("~/.ssh/ 0.5") <= 1 && !told.touches().is_empty());
}

#[test]
fn p11_a_jail_that_hammers_its_decoys_is_frozen_and_killed_at_once() {
    let room = Room::new();
    let Some((running, told)) = hammer(&room) else { return };
    for _ in 0..3 {
        assert!(running.jail.freeze(), "everything is seen stopped");
        let before = told.touches().len();
        running.jail.thaw();
        eventually("touches go on", WAIT, || (told.touches().len() > before).then_some(()));
    }
    assert!(running.jail.freeze());
    running.jail.kill();
    assert_eq!(running.jail.wait().unwrap().signal, Some(9), "a frozen jail can be killed");
}

#[test]
fn p11_places_that_are_held_and_touchers_that_are_stopped_hold_up_no_end() {
    let room = Room::new();
    room.bring_probe();
    let places: Vec<String> =
        [".ssh", ".aws", ".netrc", ".gnupg"].iter().map(|p| room.home.join(p).display().to_string()).collect();
    let argv: Vec<&str> = ["./probe", "hold-places"].into_iter().chain(places.iter().map(String::as_str)).collect();
    let Some((mut running, told)) = watched(&room, &argv) else { return };
    let mut line = String::new();
    BufReader::new(running.out.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ok holding 80\n", "descriptors, watches and a working directory are no touches that are refused");
    // Half of those that touch are stopped in the middle; the others' touches are told all the same.
    eventually("touches of the running ones", WAIT, || (told.count("~/.ssh/y") > 3).then_some(()));
    assert!(running.jail.freeze(), "everything is seen stopped");
    running.jail.thaw();
    let other = Room::new();
    let Some((second, also)) = watched(&other, &["/bin/cat", &other.home.join(".ssh/id").display().to_string()]) else { return };
    second.finish();
    assert_eq!(also.count("~/.ssh/id"), 1, "another jail's touch is told");
    running.jail.kill();
    assert_eq!(running.jail.wait().unwrap().signal, Some(9));
}
