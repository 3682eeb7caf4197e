//! Connections that were announced and have not arrived yet.

use model::event::Process;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const KEPT: usize = 4096;
const FRESH: Duration = Duration::from_secs(10);

/// Who is about to connect where: filled before a connect happens, asked when the connection arrives.
#[derive(Debug, Default)]
pub struct Announced(Mutex<VecDeque<Announcement>>);

type Announcement = (Instant, SocketAddr, Arc<Process>);

impl Announced {
    /// Takes the oldest announcement for this destination, of the last ten seconds. IPv4 and its mapped IPv6 form are the same.
    pub fn take(&self, destination: SocketAddr) -> Option<Process> {
        self.take_at(destination, Instant::now())
    }

    pub(crate) fn announce(&self, destination: SocketAddr, process: Arc<Process>) {
        self.announce_at(destination, process, Instant::now());
    }

    fn take_at(&self, destination: SocketAddr, now: Instant) -> Option<Process> {
        let wanted = plain(destination);
        let mut list = self.list(now);
        let index = list.iter().position(|(_, to, _)| *to == wanted)?;
        list.remove(index).map(|(_, _, process)| Arc::unwrap_or_clone(process))
    }

    fn announce_at(&self, destination: SocketAddr, process: Arc<Process>, now: Instant) {
        let mut list = self.list(now);
        if list.len() >= KEPT {
            list.pop_front();
        }
        list.push_back((now, plain(destination), process));
    }

    fn list(&self, now: Instant) -> MutexGuard<'_, VecDeque<Announcement>> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while list.front().is_some_and(|(at, _, _)| now.duration_since(*at) >= FRESH) {
            list.pop_front();
        }
        list
    }
}

/// Without mapping, flow label and scope.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::Origin;

    fn process(pid: u32) -> Arc<Process> {
        Arc::new(Process {
            pid,
            parent: 1,
            program: "curl".into(),
            exe: "/usr/bin/curl".into(),
            origin: Origin::System,
            argv: vec![],
            ancestry: vec![],
        })
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_arrival_finds_who_announced_it_once_and_in_order() {
        let announced = Announced::default();
        announced.announce(at("198.18.1.1:443"), process(1));
        announced.announce(at("198.18.1.1:443"), process(2));
        announced.announce(at("[::ffff:198.18.1.2]:80"), process(3));
        assert_eq!(announced.take(at("[::ffff:198.18.1.1]:443")).map(|p| p.pid), Some(1), "the listener sees mapped addresses");
        assert_eq!(announced.take(at("198.18.1.1:443")).map(|p| p.pid), Some(2));
        assert_eq!(announced.take(at("198.18.1.1:443")), None, "one announcement serves one arrival");
        assert_eq!(announced.take(at("198.18.1.2:81")), None, "another port is another destination");
        assert_eq!(announced.take(at("198.18.1.2:80")).map(|p| p.pid), Some(3));
    }

    #[test]
    fn announcements_age_and_are_bounded() {
        let announced = Announced::default();
        let now = Instant::now();
        announced.announce_at(at("1.1.1.1:1"), process(1), now);
        assert_eq!(announced.take_at(at("1.1.1.1:1"), now + FRESH), None, "too old");
        for pid in 0..10_000 {
            announced.announce_at(at("1.1.1.1:1"), process(pid), now);
        }
        assert_eq!(announced.list(now).len(), KEPT);
        assert_eq!(
            announced.take_at(at("1.1.1.1:1"), now).map(|p| p.pid),
            u32::try_from(10_000 - KEPT).ok(),
            "the oldest go first"
        );
    }
}
