//! Whether a jail's mounts still stand. When somebody outside renames or deletes what a mount lies on, the kernel takes the mount
//! away in every namespace, and what was hidden there is seen.

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Looks at the mounts of one jail until dropped. While they stand it sleeps.
#[derive(Debug)]
pub struct Stands {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Stands {
    /// Starts looking at the mounts as they are now; `lost` is called with the places of those that are gone, on a thread of its
    /// own.
    pub fn watch(init: i32, lost: impl FnMut(Vec<String>) + Send + 'static) -> io::Result<Self> {
        let mut table = File::open(format!("/proc/{init}/mountinfo"))?;
        let stand = mounts(&mut table)?;
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("mounts".into()).spawn(move || look(table, stand, &stopped, lost))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Stands {
    fn drop(&mut self) {
        // Its only write, so that the counter can't be full.
        _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed already.
            drop(thread.join());
        }
    }
}

fn look(mut table: File, mut stand: HashMap<u64, String>, stop: &OwnedFd, mut lost: impl FnMut(Vec<String>)) {
    loop {
        // The kernel calls a change of mounts an exception.
        let mut fds = [PollFd::new(&table, PollFlags::PRI), PollFd::new(stop, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !fds[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        // The jail has ended where there is nothing to read any more.
        let Ok(now) = mounts(&mut table) else { return };
        if now.is_empty() {
            return;
        }
        let mut gone: Vec<String> =
            stand.iter().filter(|(id, _)| !now.contains_key(id)).map(|(_, place)| place.clone()).collect();
        stand.retain(|id, _| now.contains_key(id));
        if !gone.is_empty() {
            gone.sort();
            lost(gone);
        }
    }
}

/// Mounts by their numbers, which none other has while they stand.
fn mounts(table: &mut File) -> io::Result<HashMap<u64, String>> {
    table.rewind()?;
    let mut text = String::new();
    table.read_to_string(&mut text)?;
    let one = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.parse().ok()?, words.nth(3)?.to_owned()))
    };
    Ok(text.lines().filter_map(one).collect())
}
