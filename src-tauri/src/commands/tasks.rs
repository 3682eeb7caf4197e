//! Repositories, tasks, runs.

use crate::app::App;
use crate::wire::error::CommandError;
use crate::wire::promise::Machine;
use crate::wire::task::{Branch, Kit, NewTask, Overview, PolicyWords, Repo, Start, Task, TaskDetail};
use engine::{Engine, Progress};
use model::id::{RepoId, TaskId};
use model::run::Stdio;
use std::path::PathBuf;
use tauri::State;
use tauri::ipc::Channel;

/// Size of a new run's terminal until its view tells the real one.
const TERMINAL: Stdio = Stdio::Terminal { cols: 120, rows: 32 };

type Answer<T> = Result<T, CommandError>;

/// All repositories and tasks.
#[tauri::command]
pub(crate) async fn overview(app: State<'_, App>) -> Answer<Overview> {
    app.run(|e| {
        let repos = e.repos()?.into_iter().map(Into::into).collect();
        Ok(Overview { repos, tasks: e.tasks()?.into_iter().map(Into::into).collect() })
    })
    .await
}

/// What this machine can keep.
#[tauri::command]
pub(crate) async fn machine(app: State<'_, App>) -> Answer<Machine> {
    app.run(|e| Ok(e.doctor()?)).await
}

/// Adds the repository that a folder is in.
#[tauri::command]
pub(crate) async fn repo_add(app: State<'_, App>, path: String) -> Answer<Repo> {
    app.run(move |e| {
        let dir = match path.strip_prefix('~') {
            Some(rest) => e.host().home.join(rest.trim_start_matches('/')),
            None => PathBuf::from(path),
        };
        Ok(e.repo_add(&dir)?)
    })
    .await
}

/// Local branches of a repository.
#[tauri::command]
pub(crate) async fn branches(app: State<'_, App>, repo: String) -> Answer<Vec<Branch>> {
    app.run(move |e| {
        let view = e.repo_view(&RepoId::parse(&repo)?)?;
        let head = view.head_branch;
        Ok(view.branches.into_iter().map(|name| Branch { checked_out: Some(&name) == head.as_ref(), name }).collect::<Vec<_>>())
    })
    .await
}

/// Agents, found or not.
#[tauri::command]
pub(crate) async fn kits(app: State<'_, App>) -> Answer<Vec<Kit>> {
    app.run(|e| Ok(e.kits()?.into_iter().map(Into::into).collect::<Vec<_>>())).await
}

/// Names of policies.
#[tauri::command]
pub(crate) async fn policies(app: State<'_, App>) -> Answer<Vec<String>> {
    app.run(|e| Ok(e.policies()?)).await
}

/// A policy in words, as a new task with this agent would have it.
#[tauri::command]
pub(crate) async fn policy(app: State<'_, App>, name: String, agent: Option<String>) -> Answer<PolicyWords> {
    app.run(move |e| Ok(e.policy_named(&name, agent.as_deref())?)).await
}

/// One task with its runs.
#[tauri::command]
pub(crate) async fn task(app: State<'_, App>, task: String) -> Answer<TaskDetail> {
    app.run(move |e| Ok(e.task(&TaskId::parse(&task)?)?)).await
}

fn words(channel: Channel<String>) -> impl Fn(Progress) {
    move |p| {
        let text = match p {
            Progress::History(percent) => format!("Copying history, {percent} %"),
            Progress::Files(percent) => format!("Writing files, {percent} %"),
            Progress::Carried { files, bytes } => format!("Carrying ignored files: {files}, {} MiB", bytes >> 20),
            Progress::Note(note) => note,
        };
        channel.send(text).ok();
    }
}

/// Starts a run. A refusal is no failure of the command: the task records it and the window shows the task.
fn start(e: &Engine, id: &TaskId) -> Answer<model::task::Task> {
    if let Err(refused) = e.launch(id, None, TERMINAL, Vec::new()) {
        tracing::info!(task = %id, %refused, "the first run did not start");
    }
    Ok(e.task(id)?.task)
}

/// Makes a task and starts its agent.
#[tauri::command]
pub(crate) async fn create(app: State<'_, App>, task: NewTask, progress: Channel<String>) -> Answer<Task> {
    app.run(move |e| {
        let new = engine::NewTask {
            title: task.title,
            prompt: task.prompt,
            base: task.base,
            agent: task.agent,
            argv: task.command.map(|line| vec!["/bin/sh".into(), "-c".into(), line]).unwrap_or_default(),
            policy: Some(task.policy),
        };
        let made = e.create(&RepoId::parse(&task.repo)?, &new, &words(progress))?;
        start(e, &made.id)
    })
    .await
}

/// Makes the demo's task and starts it.
#[tauri::command]
pub(crate) async fn demo(app: State<'_, App>, progress: Channel<String>) -> Answer<Task> {
    app.run(move |e| start(e, &e.demo(&words(progress))?)).await
}

/// Starts another run of a task.
#[tauri::command]
pub(crate) async fn launch(app: State<'_, App>, task: String, what: Start) -> Answer<()> {
    app.run(move |e| {
        let argv = match what {
            Start::Agent => None,
            Start::Shell => {
                let shell = e.kits()?.into_iter().find(|k| k.name == "shell").and_then(|k| k.program);
                Some(vec![shell.map_or_else(|| "/bin/sh".to_owned(), |p| p.display().to_string())])
            }
        };
        e.launch(&TaskId::parse(&task)?, argv, TERMINAL, Vec::new())?;
        Ok(())
    })
    .await
}

/// Stops every process of a task's run where it is.
#[tauri::command]
pub(crate) async fn pause(app: State<'_, App>, task: String) -> Answer<()> {
    app.run(move |e| Ok(e.pause(&TaskId::parse(&task)?)?)).await
}

/// Lets a paused run go on; one that a limit paused may take as much again.
#[tauri::command]
pub(crate) async fn proceed(app: State<'_, App>, task: String) -> Answer<()> {
    app.run(move |e| {
        e.proceed(&TaskId::parse(&task)?)?;
        Ok(())
    })
    .await
}

/// Ports that programs of the task's last run took; the last is the likeliest.
#[tauri::command]
pub(crate) async fn ports(app: State<'_, App>, task: String) -> Answer<Vec<u16>> {
    app.run(move |e| Ok(e.ports(&TaskId::parse(&task)?)?)).await
}

/// A link of one use to a port of a task's run, for the person's browser.
#[tauri::command]
pub(crate) async fn preview(app: State<'_, App>, task: String, port: u16) -> Answer<String> {
    app.run(move |e| Ok(e.preview(&TaskId::parse(&task)?, port)?)).await
}

/// Opens a port of a task's run in the person's browser.
#[tauri::command]
pub(crate) async fn browse(app: State<'_, App>, task: String, port: u16) -> Answer<()> {
    app.run(move |e| {
        let link = e.preview(&TaskId::parse(&task)?, port)?;
        // No other address comes this way: the page names a port, never a link.
        open::that_detached(&link).map_err(|e| {
            engine::Error::new(
                engine::Code::Machine,
                format!("no browser could be opened: {e}; Show link gives the link to copy"),
            )
        })?;
        Ok(())
    })
    .await
}

/// Ends every process of a task's run.
#[tauri::command]
pub(crate) async fn stop(app: State<'_, App>, task: String) -> Answer<()> {
    app.run(move |e| {
        e.stop(&TaskId::parse(&task)?)?;
        Ok(())
    })
    .await
}

/// Removes a task's files.
#[tauri::command]
pub(crate) async fn discard(app: State<'_, App>, task: String) -> Answer<()> {
    app.run(move |e| Ok(e.discard(&TaskId::parse(&task)?)?)).await
}
