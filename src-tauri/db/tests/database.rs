//! The database keeps what it was told, across processes and versions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may stop at once")]

use db::{Database, DbError, DecisionRow, EventLog, ExitRow, ExitState};
use model::ask::{Ask, AskState, Asked};
use model::event::{Event, What};
use model::id::{AskId, CommitId, ExitId, RepoId, RunId, TaskId, TreeId};
use model::run::PolicyText;
use model::task::{Repo, Step, Task, TaskState};

fn task() -> Task {
    Task {
        id: TaskId::from_random([1; 8]),
        repo: RepoId::from_random([2; 8]),
        title: "A task".into(),
        prompt: "do\nit".into(),
        branch: "a-task".into(),
        base: CommitId::parse(&"a".repeat(40)).unwrap(),
        base_branch: Some("main".into()),
        agent: None,
        argv: vec!["sh".into(), "-c".into(), "true".into()],
        policy: "standard".into(),
        state: TaskState::Ready,
        problem: None,
        created: 5,
        paused: None,
        last_run: None,
    }
}

fn filled(path: &std::path::Path) -> (Database, Task) {
    let db = Database::open(path).unwrap();
    let task = task();
    let repo = Repo { id: task.repo.clone(), path: "/home/u/p\u{fffd}".into(), name: "p".into(), added: 1 };
    db.add_repo(1, &repo).unwrap();
    db.add_task(2, &task, &PolicyText { name: "standard".into(), text: String::new(), repository: None }, &["/h".into()])
        .unwrap();
    (db, task)
}

#[test]
fn what_is_written_is_read_back_by_another_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let (db, task) = filled(&path);
    let other = Database::open(&path).unwrap();
    assert_eq!(other.tasks(false).unwrap(), vec![task.clone()]);
    let before = other.version().unwrap();
    assert_eq!(db.step(3, &task.id, Step::Started, None, None).unwrap(), Ok(TaskState::Running));
    assert_ne!(other.version().unwrap(), before, "another process's commit must be noticed");
    assert_eq!(other.task(&task.id).unwrap().unwrap().state, TaskState::Running);
}

#[test]
fn an_illegal_step_writes_nothing_not_even_an_audit_line() {
    let dir = tempfile::tempdir().unwrap();
    let (db, task) = filled(&dir.path().join("a.db"));
    let lines = db.audit().unwrap().len();
    assert!(db.step(3, &task.id, Step::RunEnded, None, None).unwrap().is_err(), "nothing ran");
    assert_eq!(db.audit().unwrap().len(), lines);
}

#[test]
fn a_newer_database_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let (db, _) = filled(&path);
    drop(db);
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Database::open(&path), Err(DbError::Newer { found: 99, .. })));
    let version: i64 = rusqlite::Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |r| r.get(0)).unwrap();
    assert_eq!(version, 99);
}

#[test]
fn a_changed_audit_line_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let (db, _) = filled(&path);
    assert_eq!(db.audit().unwrap().len(), 2);
    rusqlite::Connection::open(&path).unwrap().execute("UPDATE audit SET detail = '{}' WHERE seq = 1", []).unwrap();
    assert!(matches!(db.audit(), Err(db::AuditError::Broken(1))));
}

#[test]
fn a_new_decision_makes_the_approval_fall_and_an_approval_is_used_once() {
    let dir = tempfile::tempdir().unwrap();
    let (db, task) = filled(&dir.path().join("a.db"));
    let tree = TreeId::parse(&"b".repeat(40)).unwrap();
    let row = |accepted| DecisionRow { path: b"a\xff".to_vec(), old_id: "-".into(), new_id: "1".into(), accepted };
    db.decide(1, &task.id, &[row(true)]).unwrap();
    db.approve(2, &task.id, "d", &tree, &tree).unwrap();
    assert!(db.use_approval(3, &task.id, "d").unwrap());
    assert!(!db.use_approval(4, &task.id, "d").unwrap(), "used once");
    db.release_approval(5, &task.id, "d").unwrap();
    db.decide(6, &task.id, &[row(false)]).unwrap();
    assert_eq!(db.approval(&task.id).unwrap(), None);
    assert_eq!(db.decisions(&task.id).unwrap(), vec![row(false)]);
}

#[test]
fn an_exit_without_a_result_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let (db, task) = filled(&dir.path().join("a.db"));
    let mut exit = ExitRow {
        id: ExitId::from_random([9; 8]),
        task: task.id.clone(),
        kind: "apply".into(),
        state: ExitState::Intent,
        body: serde_json::json!({"x": 1}),
        time: 7,
    };
    db.put_exit(&exit).unwrap();
    assert_eq!(db.open_exits().unwrap(), vec![exit.clone()]);
    exit.state = ExitState::Done;
    db.put_exit(&exit).unwrap();
    assert_eq!(db.open_exits().unwrap(), vec![]);
    assert_eq!(db.standing_apply(&task.id).unwrap(), Some(exit));
}

#[test]
fn events_are_numbered_without_gaps_over_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.db");
    assert!(EventLog::read_only(&path).unwrap().is_none());
    let event = || Event {
        seq: 0,
        time: 1,
        run: RunId::from_random([3; 8]),
        count: 1,
        process: None,
        what: What::Lifecycle { phase: "started".into(), detail: String::new() },
    };
    EventLog::open(&path).unwrap().append(&mut [event(), event()]).unwrap();
    let mut log = EventLog::open(&path).unwrap();
    log.append(&mut [event()]).unwrap();
    let reader = EventLog::read_only(&path).unwrap().unwrap();
    assert_eq!(reader.list(2, 10, &[]).unwrap().iter().map(|e| e.seq).collect::<Vec<_>>(), vec![2, 3]);
    assert_eq!(reader.list(1, 10, &["file".into()]).unwrap(), vec![]);
}

#[test]
fn a_database_that_another_is_just_making_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; CREATE TABLE just_made (a); ").unwrap();
    std::thread::scope(|s| {
        let open = s.spawn(|| Database::open(&path).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(300));
        other.execute_batch("COMMIT").unwrap();
        open.join().unwrap().unwrap();
    });
}

#[test]
fn the_inbox_is_what_is_open_however_old_and_what_was_closed_since() {
    let dir = tempfile::tempdir().unwrap();
    let (db, task) = filled(&dir.path().join("a.db"));
    let open = |id: u8, opened: u64| {
        let ask = Ask {
            id: AskId::from_random([id; 8]),
            task: task.id.clone(),
            run: RunId::from_random([1; 8]),
            what: Asked::Connect { host: "a.test".into(), port: 443 },
            process: None,
            rule: "network.default".into(),
            source: "standard".into(),
            reason: String::new(),
            opened,
            state: AskState::Open,
            tries: 1,
            closed: None,
            grant: None,
        };
        db.open_ask(opened, &ask).unwrap();
        ask.id
    };
    let (first, before, since, last) = (open(1, 10), open(2, 20), open(3, 30), open(4, 40));
    assert!(db.answer_ask(99, &before, AskState::Denied, None, None).unwrap());
    assert!(db.answer_ask(100, &since, AskState::Denied, None, None).unwrap());
    let found: Vec<AskId> = db.asks_since(100).unwrap().into_iter().map(|a| a.id).collect();
    assert_eq!(found, [first, since, last], "oldest first");
}
