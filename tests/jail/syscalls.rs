//! The system call filter: what is refused is refused, and what daily work needs is not.
#![cfg(target_arch = "x86_64")]

use crate::room::{Room, good};
use testkit::not_tested_here;

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const ENOPROTOOPT: i32 = 92;

/// Name, number, arguments, and the error that the filter (and not the kernel's own check) gives.
const REFUSED: &[(&str, i64, &str, i32)] = &[
    ("mount", 165, "0,0,0,0,0", EPERM),
    ("umount2", 166, "0,0", EPERM),
    ("pivot_root", 155, "0,0", EPERM),
    ("chroot", 161, "0", EPERM),
    ("open_tree", 428, "0,0,0", EPERM),
    ("move_mount", 429, "0,0,0,0,0", EPERM),
    ("fsopen", 430, "0,0", EPERM),
    ("fsmount", 432, "0,0,0", EPERM),
    ("mount_setattr", 442, "0,0,0,0,0", EPERM),
    ("open_tree_attr", 467, "0,0,0,0,0", EPERM),
    ("unshare(CLONE_NEWUSER)", 272, "0x10000000", EPERM),
    ("setns", 308, "0,0", EPERM),
    ("clone(CLONE_NEWUSER)", 56, "0x10000011,0,0,0,0", EPERM),
    ("clone(CLONE_NEWNET)", 56, "0x40000011,0,0,0,0", EPERM),
    ("clone3", 435, "0,0", ENOSYS),
    ("add_key", 248, "0,0,0,0,0", EPERM),
    ("keyctl", 250, "0,0,0,0,0", EPERM),
    ("request_key", 249, "0,0,0,0", EPERM),
    ("bpf", 321, "0,0,0", EPERM),
    ("perf_event_open", 298, "0,0,0,0,0", EPERM),
    ("userfaultfd", 323, "1", EPERM),
    ("io_uring_setup", 425, "0,0", ENOSYS),
    ("io_uring_enter", 426, "0,0,0,0,0", ENOSYS),
    ("io_uring_register", 427, "0,0,0,0", ENOSYS),
    ("io_setup", 206, "1,0", ENOSYS),
    ("io_destroy", 207, "0", ENOSYS),
    ("io_getevents", 208, "0,0,0,0,0", ENOSYS),
    ("io_submit", 209, "0,0,0", ENOSYS),
    ("io_cancel", 210, "0,0,0", ENOSYS),
    ("io_pgetevents", 333, "0,0,0,0,0,0", ENOSYS),
    ("fcntl(F_SETLEASE) on no descriptor", 72, "-1,1024,0", EINVAL),
    ("fcntl(F_SETLEASE with an upper half)", 72, "-1,0x100000400,0", EINVAL),
    ("fcntl(F_SETDELEG)", 72, "-1,1040,0", EINVAL),
    ("fanotify_init", 300, "0,0", EPERM),
    ("open_by_handle_at", 304, "0,0,0", EPERM),
    ("init_module", 175, "0,0,0", EPERM),
    ("kexec_load", 246, "0,0,0,0", EPERM),
    ("syslog", 103, "3,0,0", EPERM),
    ("sched_setaffinity", 203, "0,0,0", EPERM),
    ("fallocate", 285, "1,0,0,4096", EOPNOTSUPP),
    ("ioctl(TIOCSTI)", 16, "0,0x5412,0", EPERM),
    ("ioctl(TIOCSTI with an upper half)", 16, "0,0x100005412,0", EPERM),
    ("ioctl(TIOCLINUX)", 16, "0,0x541c,0", EPERM),
    ("ioctl(TIOCSETD)", 16, "0,0x5423,0", EPERM),
    ("mmap(MAP_HUGETLB)", 9, "0,0,3,0x40022,-1,0", ENOMEM),
    ("memfd_create(MFD_HUGETLB)", 319, "$name,0x7000004", EINVAL),
    ("shmget(SHM_HUGETLB)", 29, "0,0,0xb80", ENOMEM),
    ("chmod(set-uid)", 90, "$name,0xdc0", EPERM),
    ("fchmod(set-gid)", 91, "-1,0x5c0", EPERM),
    ("fchmodat(set-uid)", 268, "-100,$name,0xdc0", EPERM),
    ("fchmodat2(set-uid)", 452, "-100,$name,0xdc0,0", EPERM),
    ("open(O_CREAT, set-gid)", 2, "$name,0x41,0x5b6", EPERM),
    ("openat(O_TMPFILE, set-uid)", 257, "-100,$name,0x410001,0x9ed", EPERM),
    ("creat(set-uid)", 85, "$name,0x9ed", EPERM),
    ("mknod(set-uid)", 133, "$name,0x89ed,0", EPERM),
    ("mknodat(set-uid)", 259, "-100,$name,0x89ed,0", EPERM),
    ("openat2", 437, "-100,$name,0,24", ENOSYS),
    ("personality(READ_IMPLIES_EXEC)", 135, "0x0400000", EPERM),
    ("mknod(a device)", 133, "0,0x2180,0x103", EPERM),
    ("setsockopt(TCP_FASTOPEN_CONNECT)", 54, "0,6,30,0,0", ENOPROTOOPT),
    ("setsockopt(IPV6_FLOWLABEL_MGR)", 54, "0,41,32,0,0", ENOPROTOOPT),
    ("sendto(MSG_FASTOPEN)", 44, "0,0,0,0x20000000,0,0", EOPNOTSUPP),
    ("sendmsg(MSG_FASTOPEN)", 46, "0,0,0x20000000", EOPNOTSUPP),
    ("sendmmsg(MSG_FASTOPEN)", 307, "0,0,0,0x20000000", EOPNOTSUPP),
    ("one of the next kernel's", 499, "0", ENOSYS),
    ("x32 getpid", 0x4000_0027, "0", ENOSYS),
];

#[test]
fn refused_calls_are_refused_by_the_filter() {
    let room = Room::new();
    if room.run(&["/usr/bin/perl", "-e", "1"]).ended.exit != Some(0) {
        return not_tested_here("perl");
    }
    let mut script = String::from("$name = q(file);");
    for (_, number, args, _) in REFUSED {
        script += &format!("$!=0; $r = syscall({number},{args}); print(($r == -1 ? $!+0 : 0), \"\\n\");");
    }
    let went = room.run(&["/usr/bin/perl", "-e", &script]);
    let got: Vec<i32> = good(&went).lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(got.len(), REFUSED.len(), "every call was tried: {went:?}");
    for ((name, _, _, want), got) in REFUSED.iter().zip(got) {
        assert_eq!(got, *want, "{name} must give error {want}");
    }
}

#[test]
fn a_call_of_another_architecture_ends_the_process() {
    let room = Room::new();
    // `int 0x80` with getpid's i386 number, as a whole program: mov eax,20; int 0x80; mov eax,60; xor edi,edi; syscall.
    let code: [u8; 16] = [0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    elf.extend([2u16, 62].iter().flat_map(|v| v.to_le_bytes()));
    elf.extend(1u32.to_le_bytes());
    elf.extend([0x40_0078u64, 64, 0].iter().flat_map(|v| v.to_le_bytes()));
    elf.extend(0u32.to_le_bytes());
    elf.extend([64u16, 56, 1, 64, 0, 0].iter().flat_map(|v| v.to_le_bytes()));
    elf.extend([1u32, 5].iter().flat_map(|v| v.to_le_bytes()));
    elf.extend([0u64, 0x40_0000, 0x40_0000, 0x88, 0x88, 0x1000].iter().flat_map(|v| v.to_le_bytes()));
    elf.extend(code);
    let program = room.task.tree().join("old");
    std::fs::write(&program, elf).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let went = room.run(&["./old"]);
    assert_eq!(went.ended.signal, Some(31), "SIGSYS: its numbers mean other calls, so nothing of it may run: {went:?}");
}

#[test]
fn daily_work_is_not_refused() {
    let room = Room::new();
    let went = room.sh(
        "set -e; mkfifo pipe; (echo through > pipe &) ; cat pipe; sleep 0.01; mkdir d; cp file d/copy; ln file hard; ln -s file soft; mv d e; \
         dd if=/dev/zero of=big bs=64k count=4 2>/dev/null; truncate -s 10 big; (exit 3) || echo $?; ls -la >/dev/null; tail -c 5 file; timeout 5 true; nice true; \
         date >/dev/null; uname -r >/dev/null; getent hosts localhost >/dev/null; id >/dev/null; df . >/dev/null; nproc >/dev/null; echo fine",
    );
    assert_eq!(good(&went), "through\n3\ntask\nfine\n", "{went:?}");
    if std::path::Path::new("/usr/bin/python3").exists() {
        let script = "import socket,threading,subprocess,tempfile,mmap,os,multiprocessing\n\
            s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); t=threading.Thread(target=lambda: s.accept()[0].sendall(b'hi')); t.start()\n\
            print(socket.create_connection(s.getsockname()).recv(2)); t.join()\n\
            print(subprocess.run(['echo','sub'],capture_output=True).stdout); a,b=socket.socketpair(); a.send(b'x'); print(b.recv(1)); os.posix_fallocate(os.open('pf',os.O_RDWR|os.O_CREAT),0,10) if False else None\n\
            print(multiprocessing.Semaphore(1).acquire())";
        assert_eq!(good(&room.run(&["/usr/bin/python3", "-c", script])), "b'hi'\nb'sub\\n'\nb'x'\nTrue\n");
    }
}
