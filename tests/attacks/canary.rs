//! Servers of the person's that nobody in a jail may reach: each keeps what arrives.

use nix::libc;
use std::io::{IoSlice, Read as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What arrived at one of them, and the way to end it.
pub(crate) struct Canary {
    heard: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Canary {
    /// Stream sockets at a path; whoever comes gets `gift` handed as a descriptor.
    pub(crate) fn stream(path: &Path, gift: OwnedFd) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        Self::accepting(listener, gift)
    }

    /// Stream sockets of an abstract name; likewise.
    pub(crate) fn abstract_stream(name: &str, gift: OwnedFd) -> Self {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        Self::accepting(UnixListener::bind_addr(&address).unwrap(), gift)
    }

    fn accepting(listener: UnixListener, gift: OwnedFd) -> Self {
        listener.set_nonblocking(true).unwrap();
        Self::hearing(move || listener.accept().ok().map(|(stream, _)| with_gift(stream, &gift)))
    }

    /// Datagrams at a path.
    pub(crate) fn datagram(path: &Path) -> Self {
        Self::receiving(UnixDatagram::bind(path).unwrap())
    }

    /// Datagrams at an abstract name.
    pub(crate) fn abstract_datagram(name: &str) -> Self {
        Self::receiving(UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap())
    }

    fn receiving(socket: UnixDatagram) -> Self {
        socket.set_nonblocking(true).unwrap();
        let mut word = [0; 512];
        Self::hearing(move || socket.recv(&mut word).ok().map(|n| word[..n].to_vec()))
    }

    /// TCP on loopback, and its port.
    pub(crate) fn tcp() -> (Self, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let heard = Self::hearing(move || {
            let (mut stream, _) = listener.accept().ok()?;
            stream.set_nonblocking(false).ok()?;
            stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
            let mut word = vec![0; 512];
            let n = stream.read(&mut word).unwrap_or(0);
            word.truncate(n);
            // That somebody came at all is heard.
            Some([b"connected ".as_slice(), &word].concat())
        });
        (heard, port)
    }

    /// UDP on loopback, and its port.
    pub(crate) fn udp() -> (Self, u16) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        socket.set_nonblocking(true).unwrap();
        let mut word = [0; 512];
        (Self::hearing(move || socket.recv(&mut word).ok().map(|n| word[..n].to_vec())), port)
    }

    /// Streams among virtual machines, at every address of this one, and its port; none where the kernel has none.
    pub(crate) fn vsock() -> Option<(Self, u32)> {
        use nix::sys::socket::{
            AddressFamily, Backlog, SockFlag, SockType, VsockAddr, accept, bind, getsockname, listen, socket,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Vsock, SockType::Stream, flags, None).ok()?;
        bind(listener.as_raw_fd(), &VsockAddr::new(libc::VMADDR_CID_ANY, libc::VMADDR_PORT_ANY)).ok()?;
        listen(&listener, Backlog::new(8).ok()?).ok()?;
        let port = getsockname::<VsockAddr>(listener.as_raw_fd()).ok()?.port();
        let next = move || {
            nix::unistd::close(accept(listener.as_raw_fd()).ok()?).ok()?;
            Some(b"connected".to_vec())
        };
        Some((Self::hearing(next), port))
    }

    fn hearing(mut next: impl FnMut() -> Option<Vec<u8>> + Send + 'static) -> Self {
        let (heard, stop) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<AtomicBool>::default());
        let thread = {
            let (heard, stop) = (Arc::clone(&heard), Arc::clone(&stop));
            std::thread::spawn(move || {
                loop {
                    // Looked at before the last try, so that what came before the end is heard.
                    let last = stop.load(Ordering::SeqCst);
                    match next() {
                        Some(word) => heard.lock().unwrap().extend(word),
                        None if last => return,
                        None => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            })
        };
        Self { heard, stop, thread: Some(thread) }
    }

    /// Ends it; whether anything arrived.
    pub(crate) fn sang(&mut self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        !self.heard.lock().unwrap().is_empty()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.sang();
    }
}

fn with_gift(mut stream: UnixStream, gift: &OwnedFd) -> Vec<u8> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    let fds = [gift.as_fd()];
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
    // A client that is gone already takes nothing.
    let _ = rustix::net::sendmsg(&stream, &[IoSlice::new(b"gift")], &mut control, rustix::net::SendFlags::NOSIGNAL);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut word = vec![0; 512];
    let n = stream.read(&mut word).unwrap_or(0);
    word.truncate(n);
    [b"connected ".as_slice(), &word].concat()
}
