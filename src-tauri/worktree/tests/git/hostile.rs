//! What a workspace, or a keeper that fell to it, gives to git: it may be refused, but it neither hangs nor takes the machine.

use crate::fixture::{Says, Task, Unjailed, World};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use worktree::{CandidateError, candidate};

#[test]
fn p9_a_fifo_that_git_would_open_is_named_and_not_waited_for() {
    for at in [".gitattributes", "src/.gitattributes"] {
        let world = World::new();
        let task = world.create();
        task.write("a.txt", "changed\n");
        task.write("src/lib.rs", "changed\n");
        let fifo = task.tree().join(at);
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let (tell, told) = channel();
        let git = task.git.clone();
        std::thread::spawn(move || tell.send(candidate(&git, &Unjailed, true)));
        let Ok(taken) = told.recv_timeout(Duration::from_secs(60)) else {
            // Lets git go, so that nothing is left.
            drop(std::fs::File::options().write(true).open(&fifo));
            panic!("git waits in {at}");
        };
        let said = taken.expect_err("git's own attributes can't be read").to_string();
        assert!(said.contains(at) && said.contains("FIFO"), "{said}");
        std::fs::remove_file(&fifo).unwrap();
        assert_ne!(task.candidate().tree, task.created.base_tree, "without it all is as ever");
    }
}

/// What a keeper would say about this pack.
fn says(task: &Task, tree: &str, pack: Vec<u8>) -> Result<(), CandidateError> {
    let line = format!("{{\"tree\":\"{tree}\",\"left_out\":[]}}\n");
    candidate(&task.git, &Says([line.into_bytes(), pack].concat(), 0), true).map(drop)
}

#[test]
fn p8_a_pack_that_unfolds_to_more_than_the_machine_has_is_refused() {
    let world = World::new();
    let task = world.create();
    // 15 MiB, then twenty times that, then eight times that, each in some hundred bytes.
    let base = vec![0; 15 << 20];
    let mut objects = vec![(entry(3, base.len(), &[]), base.clone())];
    let (mut size, mut back) = (base.len(), stored(&objects[0].1).len() + objects[0].0.len());
    for times in [20, 8] {
        let delta = again(size, times);
        size *= times;
        let head = entry(6, delta.len(), &offset(back));
        back = head.len() + stored(&delta).len();
        objects.push((head, delta));
    }
    let mut pack = b"PACK\0\0\0\x02\0\0\0\x03".to_vec();
    for (head, content) in objects {
        pack.extend(head);
        pack.extend(stored(&content));
    }
    let sum = sha1(&pack);
    pack.extend(sum);
    let refused = says(&task, task.created.base_tree.as_str(), pack).expect_err("it unfolds to 2.4 GiB");
    assert!(matches!(refused, CandidateError::TooLarge { .. }), "{refused}");
    assert!(refused.to_string().contains("2 GiB of memory"), "{refused}");
    assert_eq!(task.candidate().tree, task.created.base_tree, "and all goes on");
}

#[test]
fn p8_a_tree_with_more_paths_than_can_be_counted_is_refused() {
    let world = World::new();
    let task = world.create();
    let scratch = world.dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    world.git_in(&scratch, ["init", "-q", "--bare"]);
    let fed = |words: &[&str], input: &str| {
        let mut git = world.command(&scratch).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        git.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = git.wait_with_output().unwrap();
        assert!(out.status.success(), "{words:?}");
        out.stdout
    };
    let line = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    let blob = line(fed(&["hash-object", "-w", "--stdin"], "x\n"));
    let mut tree = line(fed(&["mktree"], &format!("100644 blob {blob}\tfile\n")));
    for _ in 0..12 {
        let level: String = (0..12).map(|n| format!("040000 tree {tree}\tdirectory-{n}\n")).collect();
        tree = line(fed(&["mktree"], &level));
    }
    let pack = fed(&["pack-objects", "--revs", "--stdout", "-q"], &format!("{tree}\n"));
    let refused = says(&task, &tree, pack).expect_err("it has 12^12 paths");
    assert!(matches!(refused, CandidateError::TooLarge { .. }), "{refused}");
    assert!(refused.to_string().contains("list of its files"), "{refused}");
    assert_eq!(task.candidate().tree, task.created.base_tree, "and all goes on");
}

/// The head of an object in a pack.
fn entry(kind: u8, size: usize, then: &[u8]) -> Vec<u8> {
    let mut rest = size >> 4;
    let mut out = vec![kind << 4 | low(size, 4)];
    while rest > 0 {
        *out.last_mut().unwrap() |= 0x80;
        out.push(low(rest, 7));
        rest >>= 7;
    }
    [out.as_slice(), then].concat()
}

/// How far back the base of a delta lies.
fn offset(mut back: usize) -> Vec<u8> {
    let mut out = vec![low(back, 7)];
    back >>= 7;
    while back > 0 {
        back -= 1;
        out.insert(0, 0x80 | low(back, 7));
        back >>= 7;
    }
    out
}

/// A delta that copies the whole base so many times.
fn again(base: usize, times: usize) -> Vec<u8> {
    let number = |mut n: usize| {
        let mut out = vec![];
        while n > 0x7f {
            out.push(0x80 | low(n, 7));
            n >>= 7;
        }
        out.push(low(n, 7));
        out
    };
    let mut out = [number(base), number(base * times)].concat();
    for _ in 0..times {
        let mut at = 0;
        while at < base {
            let len = (base - at).min(0xff_ffff);
            out.push(0xff);
            out.extend(&u32::try_from(at).unwrap().to_le_bytes());
            out.extend(&u32::try_from(len).unwrap().to_le_bytes()[..3]);
            at += len;
        }
    }
    out
}

fn low(n: usize, bits: u32) -> u8 {
    u8::try_from(n & ((1 << bits) - 1)).unwrap()
}

/// A zlib stream of stored blocks.
fn stored(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut chunks = content.chunks(0xffff).peekable();
    while let Some(chunk) = chunks.next() {
        let len = u16::try_from(chunk.len()).unwrap();
        out.push(u8::from(chunks.peek().is_none()));
        out.extend(len.to_le_bytes());
        out.extend((!len).to_le_bytes());
        out.extend(chunk);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in content {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    out.extend((b << 16 | a).to_be_bytes());
    out
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    let mut sum = Command::new("sha1sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(bytes).unwrap();
    let out = sum.wait_with_output().unwrap().stdout;
    (0..20).map(|n| u8::from_str_radix(std::str::from_utf8(&out[2 * n..2 * n + 2]).unwrap(), 16).unwrap()).collect()
}
