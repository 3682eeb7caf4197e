//! Workspaces at paths that programs stumble over.

use crate::room::{Room, good};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

fn works(path: &[u8]) {
    let room = Room::at(OsStr::from_bytes(path));
    let went = room.sh("pwd -P > where; cat file; echo '#!/bin/sh' > run; echo 'echo ran' >> run; chmod +x run; ./run; cat .git");
    assert_eq!(good(&went), "of the task\nran\ngitdir: /run/airlock/git\n", "{path:?}: {went:?}");
    let mut inside = std::fs::read(room.task.tree().join("where")).unwrap();
    inside.pop();
    assert_eq!(inside, room.workspace.as_os_str().as_bytes(), "it stands where the repository is");
}

#[test]
fn spaces_quotes_newlines_and_any_bytes() {
    works(b"home/person/my repo");
    works(b"home/person/it's \"quoted\" $(touch x) `y` %s \\n");
    works(b"home/person/line\nbreak/re\tpo");
    works(b"home/person/latin-\xe9\xff/repo");
    works(b"-rf");
}

#[test]
fn below_the_home_beside_it_below_tmp_and_elsewhere() {
    works(b"home/person/repo");
    works(b"elsewhere/deep/down/repo");
    works(b"/tmp/airlock-no-such-place/repo");
    works(b"/data/x");
    works(b"/srv");
    works(b"/opt/airlock-no-such-place/repo");
}

#[test]
fn a_path_of_almost_the_longest_length() {
    let part = "d".repeat(200);
    let long = std::iter::repeat_n(part.as_str(), 19).collect::<Vec<_>>().join("/");
    works(format!("/{long}").as_bytes());
}
