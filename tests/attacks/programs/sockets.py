# Against sockets of the person's: sockets.py ATTACK PLACE. What a server hands over is printed.
import array, os, socket, sys, time

attack, place = sys.argv[1], sys.argv[2]
WORD = b"canary"


def took(client):
    """A descriptor that the server hands to whoever comes."""
    client.settimeout(2)
    try:
        _, ancillary, _, _ = client.recvmsg(16, socket.CMSG_SPACE(4 * 4))
    except OSError as error:
        print("recvmsg", error)
        return
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            for fd in array.array("i", data[:4]):
                os.lseek(fd, 0, 0)
                print(os.read(fd, 4096).decode())


def stream(address):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(address)
    client.sendall(WORD)
    took(client)


def datagram(address, how):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if how == "sendto":
        client.sendto(WORD, address)
    elif how == "sendmsg":
        client.sendmsg([WORD], [], 0, address)
    else:
        client.connect(address)
        client.send(WORD)


def by_link(path):
    """By a held directory and the link of an open descriptor, so that no rule about paths sees a path."""
    at = os.open(path, os.O_PATH)
    stream("/proc/self/fd/%d" % at)


def relative(path):
    os.chdir(os.path.dirname(path))
    stream(os.path.basename(path))


def over_binding(path):
    """Takes the server's place for those that come later."""
    os.rename(path, path + ".old")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)


def handed_on(path):
    """A child connects and hands the connection to its parent."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(path)
        socket.send_fds(theirs, [b"x"], [client.fileno()])
        os._exit(0)
    ours.settimeout(5)
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    os.write(fds[0], WORD)


def guessed(name):
    """Names of the abstract space, as a table inside lists them."""
    with open("/proc/net/unix") as table:
        names = [line.split()[-1] for line in table if "@" in line]
    for found in [n for n in names if name in n] + ["@" + name]:
        stream("\0" + found[1:])


def tcp(port):
    client = socket.create_connection(("127.0.0.1", int(port)), 2)
    client.sendall(WORD)


def vsock(port):
    """The machine's own address, the host's, and the one that the machine has among others."""
    own = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    own.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
    for cid in (1, 2, own.getsockname()[0]):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            try:
                client = socket.socket(socket.AF_VSOCK, kind)
                client.settimeout(1)
                client.connect((cid, int(port)))
                client.sendall(WORD)
            except OSError as error:
                print(cid, kind, error)


def udp(port):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(WORD, ("127.0.0.1", int(port)))


def every_address(port):
    """The machine's own addresses, as it may be reached by another name than loopback."""
    for address in ("127.0.0.1", "0.0.0.0", "127.1.2.3", "::1", "::ffff:127.0.0.1", "localhost"):
        try:
            socket.create_connection((address, int(port)), 1).sendall(WORD)
        except OSError as error:
            print(address, error)


def question(port):
    """What a secret looks like in a question to a name server."""
    name = b"\x06canary\x05exfil\x04test\x00"
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + name + b"\x00\x01\x00\x01"
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(query, ("127.0.0.1", int(port)))


WAYS = {
    "stream": stream,
    "sendto": lambda p: datagram(p, "sendto"),
    "sendmsg": lambda p: datagram(p, "sendmsg"),
    "connected": lambda p: datagram(p, "connect"),
    "by-link": by_link,
    "relative": relative,
    "over-binding": over_binding,
    "handed-on": handed_on,
    "abstract": lambda n: stream("\0" + n),
    "abstract-sendto": lambda n: datagram("\0" + n, "sendto"),
    "guessed": guessed,
    "tcp": tcp,
    "udp": udp,
    "vsock": vsock,
    "every-address": every_address,
    "question": question,
}
WAYS[attack](place)
time.sleep(0.1)
