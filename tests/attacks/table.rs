//! What an attack is: a program, whom it goes against, and how it is shown to work.

/// One way out.
pub(crate) struct Attack {
    /// Short name.
    pub(crate) name: &'static str,
    /// Where it is known from, or what it would reach.
    pub(crate) why: &'static str,
    pub(crate) program: Program,
    pub(crate) victim: Victim,
    pub(crate) control: Control,
    /// What a machine may lack so that the control can't succeed either; empty where every machine has it. A control that fails
    /// then is listed with these words and the attack does not count as held.
    pub(crate) lacks: &'static str,
}

/// A hostile program with its arguments. In these `{secret}`, `{file}`, `{pid}`, … are the stage's; see `Stage::filled`.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// `programs/NAME.c`.
    C(&'static str, &'static [&'static str]),
    /// `programs/NAME.py`.
    Python(&'static str, &'static [&'static str]),
    /// A script of `/bin/sh`.
    Shell(&'static str),
    /// The Rust program `probe`.
    Probe(&'static [&'static str]),
}

/// Whom it goes against, and by what of the host's state it is seen to have come through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// A file that no jail shows: its contents come out of the program.
    Secret,
    /// A hidden file in a place that is shown: its contents come out of the program.
    Hidden,
    /// A file that no jail shows: anything about it, or about its directory, changes.
    File,
    /// A file that is shown to be read only: likewise.
    Shown,
    /// What lies below a cache: likewise.
    Cache,
    /// A process: it is dead, stopped, or anything about it changes.
    Process,
    /// The secret that a process holds comes out of the program.
    Memory,
    /// A socket file, stream: a word arrives at it.
    Stream,
    /// A socket file, datagrams: likewise.
    Datagram,
    /// A socket in the abstract namespace, stream: likewise.
    Abstract,
    /// A socket in the abstract namespace, datagrams: likewise.
    AbstractDatagram,
    /// An X server of the person's: a word is known there that only the program says.
    Screen,
    /// A server at the machine's own address among virtual machines (vsock): a word arrives at it.
    Vsock,
    /// TCP on loopback: likewise.
    Tcp,
    /// UDP on loopback: likewise.
    Udp,
    /// The kernel: one of the program's processes holds a descriptor whose link begins with this, or a socket of such a
    /// protocol as `/proc/net` lists it.
    Descriptor(&'static str),
    /// Other users of the machine: a program of the agent's gains an id or a capability that it did not have.
    Rights,
    /// Others who come later: the program leaves a device, or a file with set-id bits, in a place that it may write.
    Left,
    /// Everybody: the program has more processes than this.
    Processes(usize),
    /// Everybody: one process has more descriptors than this.
    Descriptors(usize),
    /// The program that runs the victim, or the jail: the file changes.
    Runtime,
    /// A table of the user's that the program `quotas` takes all of: whoever comes then, outside and by the same user, gets none.
    Table(&'static str),
    /// The machine's huge pages: none is left.
    HugePages,
    /// A setting of the kernel, or any other file of the machine's: its contents change, or it comes to be.
    Setting(&'static str),
    /// The machine's clock: it is an hour off.
    Clock,
    /// The keyrings of the person: a key of the program's is in one.
    Keys,
    /// A key of the person's: its contents come out of the program.
    Key,
    /// The kernel's log: a line of it comes out of the program.
    Log,
    /// A core file in a place that the program may write.
    Dump,
    /// An object of the program's in the test's own IPC namespace.
    Shared,
    /// Nothing outside: the harm is in the control's own throw-away namespaces, whose script sees it.
    Apart,
}

/// How the program is shown to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Run outside as it is, by the same user.
    Plain,
    /// Likewise, where root runs this; an ordinary user can't show it.
    Root,
    /// Run outside by a user without rights, where root runs this and prepares what is needed.
    Nobody,
    /// Run outside by a user without rights, whoever runs this.
    Unprivileged,
    /// Run by root of throw-away user, mount, pid, network and IPC namespaces, by this script: it prepares, runs the program as
    /// `"$@"`, and may say `fell` where the harm is to be seen there only.
    Apart(&'static str),
    /// It can't succeed here; why.
    Never(&'static str),
}

impl Attack {
    /// One whose control is to succeed on every machine.
    pub(crate) const fn new(name: &'static str, why: &'static str, program: Program, victim: Victim, control: Control) -> Self {
        Self { name, why, program, victim, control, lacks: "" }
    }

    /// One that a machine may not know at all.
    pub(crate) const fn or_lacks(mut self, lacks: &'static str) -> Self {
        self.lacks = lacks;
        self
    }
}
