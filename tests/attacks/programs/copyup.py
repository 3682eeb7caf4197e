# Against the files below a shared cache: copyup.py DIR. Each child goes for the same few files in another way, all at once, so that
# what one of them is about to write is being copied up, renamed or taken away by another.
import ctypes, mmap, os, sys, time

os.chdir(sys.argv[1])
FILES = ["content/one", "content/two", "top"]
libc = ctypes.CDLL(None, use_errno=True)
held = [os.open(f, os.O_RDONLY) for f in FILES]
where = os.open(".", os.O_RDONLY)


def write(f, i):
    fd = os.open(f, os.O_RDWR)
    os.write(fd, b"MINE")
    os.ftruncate(fd, i % 8)
    os.fsync(fd)
    os.close(fd)


def rename(f, i):
    os.rename(f, f + "-")
    os.rename(f + "-", FILES[i % 3])


def exchange(f, i):
    libc.renameat2(where, f.encode(), where, FILES[i % 3].encode(), 2)


def directories(f, i):
    os.rename("content", "moved")
    os.mkdir("content")
    os.rmdir("content")
    os.rename("moved", "content")


def link(f, i):
    name = "link-%d" % (i % 4)
    os.link(f, name)
    os.chmod(name, 0o777)
    os.truncate(name, 1)
    os.unlink(name)


def mapping(f, i):
    read = os.open(f, os.O_RDONLY)
    before = mmap.mmap(read, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    fd = os.open("/proc/self/fd/%d" % read, os.O_RDWR)
    after = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    after[0:1] = b"M"
    after.flush()
    for line in open("/proc/self/maps"):
        if f in line:
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            libc.mprotect(ctypes.c_void_p(begin), end - begin, 3)
    os.close(read)
    os.close(fd)


def metadata(f, i):
    fd = held[i % 3]
    for call in (
        lambda: os.fchmod(fd, 0o600 + i % 64),
        lambda: os.utime(fd, (i, i)),
        lambda: os.setxattr(fd, "user.mine", b"1"),
        lambda: os.setxattr("content", "trusted.overlay.opaque", b"y"),
        lambda: os.setxattr("content", "user.overlay.redirect", b"/content"),
        lambda: os.fchmod(where, 0o777),
        lambda: os.chown(fd, os.getuid(), os.getgid()),
    ):
        try:
            call()
        except OSError:
            pass


def emptied(f, i):
    fd = os.open(f, os.O_WRONLY | os.O_TRUNC)
    own = os.memfd_create("own")
    os.write(own, b"MINE" * 16)
    os.lseek(own, 0, 0)
    os.sendfile(fd, own, 0, 64)
    os.copy_file_range(own, fd, 32, 0, 0)
    os.posix_fallocate(fd, 0, 128)
    os.close(own)
    os.close(fd)


def replaced(f, i):
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.write(fd, b"MINE")
    os.link("/proc/self/fd/%d" % fd, "made-%d" % (i % 4), follow_symlinks=True)
    os.rename("made-%d" % (i % 4), f)
    os.close(fd)


def reopened(f, i):
    os.write(os.open("/proc/self/fd/%d" % held[i % 3], os.O_RDWR), b"MINE")


end = time.time() + 2
for way in (write, rename, exchange, directories, link, mapping, metadata, emptied, replaced, reopened):
    if os.fork() == 0:
        i = 0
        while time.time() < end:
            i += 1
            try:
                way(FILES[i % 3], i)
            except (OSError, ValueError):
                pass
        os._exit(0)
try:
    while True:
        os.wait()
except ChildProcessError:
    print("raced")
