/* Starts a flow in one of all ways that Linux has: `ways WAY TOKEN [ADDRESS [PORT]]`. Prints `sent` or `refused AT: WHY`.
   Outside a jail it is the control, which must be heard; inside nothing of it may be. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define IPPROTO_SMC 256
#define AF_SMC_ 43

static const char *token, *address, *port_text;
static struct sockaddr_storage to;
static socklen_t to_len;

static void refused(const char *at) {
    printf("refused %s: %s\n", at, strerror(errno));
    exit(0);
}

static void must(int ok, const char *at) {
    if (!ok) refused(at);
}

static int inet_target(void) {
    struct sockaddr_in *v4 = (void *)&to;
    struct sockaddr_in6 *v6 = (void *)&to;
    unsigned short port = htons((unsigned short)atoi(port_text));
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        to_len = sizeof *v4;
    } else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
        to_len = sizeof *v6;
    } else {
        errno = EINVAL;
        refused("address");
    }
    return to.ss_family;
}

static int made(int family, int type, int protocol) {
    int s = socket(family, type, protocol);
    must(s >= 0, "socket");
    return s;
}

static void option(int s, int level, int name, const void *value, socklen_t len, const char *what) {
    must(setsockopt(s, level, name, value, len) == 0, what);
}

static void connected(int s) {
    must(connect(s, (void *)&to, to_len) == 0, "connect");
    must(send(s, token, strlen(token), 0) >= 0, "send");
}

static struct msghdr message(struct iovec *part) {
    struct msghdr m = {.msg_name = &to, .msg_namelen = to_len, .msg_iov = part, .msg_iovlen = 1};
    part->iov_base = (void *)token;
    part->iov_len = strlen(token);
    return m;
}

static void by_sendto(int s, int flags) {
    must(sendto(s, token, strlen(token), flags, (void *)&to, to_len) >= 0, "sendto");
}

static void by_sendmsg(int s, int flags) {
    struct iovec part;
    struct msghdr m = message(&part);
    must(sendmsg(s, &m, flags) >= 0, "sendmsg");
}

static void by_sendmmsg(int s, int flags) {
    struct iovec part;
    struct mmsghdr m = {.msg_hdr = message(&part)};
    must(sendmmsg(s, &m, 1, flags) == 1, "sendmmsg");
}

static unsigned short sum(const void *data, size_t len) {
    const unsigned char *p = data;
    unsigned long s = 0;
    for (size_t i = 0; i + 1 < len; i += 2) s += (unsigned)p[i] << 8 | p[i + 1];
    if (len % 2) s += (unsigned)p[len - 1] << 8;
    while (s >> 16) s = (s & 0xffff) + (s >> 16);
    return htons((unsigned short)~s);
}

/* An IPv4 datagram of UDP, header and all. */
static size_t datagram(unsigned char *out) {
    struct sockaddr_in *v4 = (void *)&to;
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .saddr = v4->sin_addr.s_addr, .daddr = v4->sin_addr.s_addr};
    struct udphdr udp = {.source = htons(4444), .dest = v4->sin_port, .len = htons((unsigned short)(sizeof udp + strlen(token)))};
    size_t len = sizeof ip + sizeof udp + strlen(token);
    ip.tot_len = htons((unsigned short)len);
    ip.check = sum(&ip, sizeof ip);
    memcpy(out, &ip, sizeof ip);
    memcpy(out + sizeof ip, &udp, sizeof udp);
    memcpy(out + sizeof ip + sizeof udp, token, strlen(token));
    return len;
}

static void echo(int s) {
    unsigned char out[256];
    struct icmphdr head = {.type = ICMP_ECHO, .un.echo = {.id = htons(77), .sequence = htons(1)}};
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, token, strlen(token));
    size_t len = sizeof head + strlen(token);
    head.checksum = sum(out, len);
    memcpy(out, &head, sizeof head);
    must(sendto(s, out, len, 0, (void *)&to, to_len) >= 0, "sendto");
}

/* One operation through io_uring, which no filter of system calls sees. */
static int uring(int ring, struct io_uring_params *p, struct io_uring_sqe sqe) {
    size_t sq_len = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t cq_len = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    char *sq = mmap(0, sq_len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(0, cq_len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqes = mmap(0, p->sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    must(sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED, "mmap of io_uring");
    unsigned *tail = (void *)(sq + p->sq_off.tail), mask = *(unsigned *)(sq + p->sq_off.ring_mask);
    sqes[*tail & mask] = sqe;
    ((unsigned *)(sq + p->sq_off.array))[*tail & mask] = *tail & mask;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    must(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1, "io_uring_enter");
    unsigned *head = (void *)(cq + p->cq_off.head), cq_mask = *(unsigned *)(cq + p->cq_off.ring_mask);
    int result = ((struct io_uring_cqe *)(cq + p->cq_off.cqes))[*head & cq_mask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    if (result < 0) {
        errno = -result;
        refused("io_uring");
    }
    return result;
}

static void uring_connect(int s) {
    struct io_uring_params p = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    must(ring >= 0, "io_uring_setup");
    uring(ring, &p, (struct io_uring_sqe){.opcode = IORING_OP_CONNECT, .fd = s, .addr = (unsigned long)&to, .off = to_len});
    uring(ring, &p, (struct io_uring_sqe){.opcode = IORING_OP_SEND, .fd = s, .addr = (unsigned long)token, .len = (unsigned)strlen(token)});
}

static void uring_sendmsg(int s) {
    struct io_uring_params p = {0};
    struct iovec part;
    struct msghdr m = message(&part);
    int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    must(ring >= 0, "io_uring_setup");
    uring(ring, &p, (struct io_uring_sqe){.opcode = IORING_OP_SENDMSG, .fd = s, .addr = (unsigned long)&m, .len = 1});
}

static void unix_target(int abstract) {
    struct sockaddr_un *un = (void *)&to;
    un->sun_family = AF_UNIX;
    strncpy(un->sun_path + abstract, address, sizeof un->sun_path - 2);
    to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)abstract + strlen(address) + (abstract ? 0 : 1));
}

static void bound(int s) {
    struct sockaddr_storage from = {.ss_family = to.ss_family};
    must(bind(s, (void *)&from, to_len) == 0, "bind");
}

static void listening(void) {
    int one = 1, s = made(inet_target(), SOCK_STREAM, 0);
    option(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one, "SO_REUSEADDR");
    must(bind(s, (void *)&to, to_len) == 0, "bind");
    must(listen(s, 8) == 0, "listen");
    printf("listening\n");
    fflush(stdout);
    struct pollfd p = {.fd = s, .events = POLLIN};
    puts(poll(&p, 1, 10000) == 1 ? "somebody came" : "nobody came");
    exit(0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *way = argv[1];
    token = argv[2];
    address = argc > 3 ? argv[3] : "";
    port_text = argc > 4 ? argv[4] : "0";
    int one = 1;
#define IS(name) (strcmp(way, name) == 0)
#define TCP() made(inet_target(), SOCK_STREAM, 0)
#define UDP() made(inet_target(), SOCK_DGRAM, 0)
    if (IS("connect")) connected(TCP());
    else if (IS("connect-nonblocking")) {
        int s = made(inet_target(), SOCK_STREAM | SOCK_NONBLOCK, 0);
        must(connect(s, (void *)&to, to_len) == 0 || errno == EINPROGRESS, "connect");
        struct pollfd p = {.fd = s, .events = POLLOUT};
        poll(&p, 1, 3000);
        must(send(s, token, strlen(token), MSG_NOSIGNAL) >= 0, "send");
    } else if (IS("connect-flow-label")) {
        int s = TCP();
        ((struct sockaddr_in6 *)&to)->sin6_flowinfo = htonl(0x12345);
        /* Labels must be leased first where the kernel insists; the field itself goes through connect either way. */
        setsockopt(s, IPPROTO_IPV6, 33, &one, sizeof one);
        if (connect(s, (void *)&to, to_len) != 0) {
            int zero = 0;
            setsockopt(s, IPPROTO_IPV6, 33, &zero, sizeof zero);
            must(connect(s, (void *)&to, to_len) == 0, "connect");
        }
        must(send(s, token, strlen(token), 0) >= 0, "send");
    } else if (IS("connect-by-device")) {
        int s = TCP();
        option(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3, "SO_BINDTODEVICE");
        connected(s);
    } else if (IS("connect-from-port")) {
        int s = TCP();
        bound(s);
        connected(s);
    } else if (IS("connect-transparent")) {
        int s = TCP();
        option(s, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one, "IP_TRANSPARENT");
        bound(s);
        connected(s);
    } else if (IS("connect-marked")) {
        int s = TCP();
        option(s, SOL_SOCKET, SO_MARK, &one, sizeof one, "SO_MARK");
        connected(s);
    } else if (IS("fastopen-sendto")) by_sendto(TCP(), MSG_FASTOPEN);
    else if (IS("fastopen-sendmsg")) by_sendmsg(TCP(), MSG_FASTOPEN);
    else if (IS("fastopen-sendmmsg")) by_sendmmsg(TCP(), MSG_FASTOPEN);
    else if (IS("fastopen-connect")) {
        int s = TCP();
        option(s, IPPROTO_TCP, 30, &one, sizeof one, "TCP_FASTOPEN_CONNECT");
        must(connect(s, (void *)&to, to_len) == 0, "connect");
        must(write(s, token, strlen(token)) >= 0, "write");
    } else if (IS("mptcp")) connected(made(inet_target(), SOCK_STREAM, IPPROTO_MPTCP));
    else if (IS("mptcp-fastopen")) by_sendto(made(inet_target(), SOCK_STREAM, IPPROTO_MPTCP), MSG_FASTOPEN);
    else if (IS("smc")) {
        inet_target();
        connected(made(AF_SMC_, SOCK_STREAM, to.ss_family == AF_INET ? 0 : 1));
    } else if (IS("smc-inet")) connected(made(inet_target(), SOCK_STREAM, IPPROTO_SMC));
    else if (IS("sctp")) connected(made(inet_target(), SOCK_STREAM, IPPROTO_SCTP));
    else if (IS("sctp-sendto")) by_sendto(made(inet_target(), SOCK_SEQPACKET, IPPROTO_SCTP), 0);
    else if (IS("io_uring-connect")) uring_connect(TCP());
    else if (IS("io_uring-sendmsg")) uring_sendmsg(UDP());
    else if (IS("udp-connect")) connected(UDP());
    else if (IS("udp-sendto")) by_sendto(UDP(), 0);
    else if (IS("udp-sendmsg")) by_sendmsg(UDP(), 0);
    else if (IS("udp-sendmmsg")) by_sendmmsg(UDP(), 0);
    else if (IS("udp-flags")) by_sendto(UDP(), MSG_CONFIRM | MSG_DONTROUTE);
    else if (IS("udplite")) by_sendto(made(inet_target(), SOCK_DGRAM, IPPROTO_UDPLITE), 0);
    else if (IS("broadcast")) {
        int s = UDP();
        option(s, SOL_SOCKET, SO_BROADCAST, &one, sizeof one, "SO_BROADCAST");
        by_sendto(s, 0);
    } else if (IS("multicast")) {
        int s = UDP();
        struct in_addr lo = {htonl(INADDR_LOOPBACK)};
        option(s, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof lo, "IP_MULTICAST_IF");
        by_sendto(s, 0);
    } else if (IS("raw")) by_sendto(made(inet_target(), SOCK_RAW, 253), 0);
    else if (IS("raw-header")) {
        unsigned char out[512];
        int s = made(inet_target(), SOCK_RAW, IPPROTO_RAW);
        size_t len = datagram(out);
        must(sendto(s, out, len, 0, (void *)&to, to_len) >= 0, "sendto");
    } else if (IS("icmp")) echo(made(inet_target(), SOCK_RAW, IPPROTO_ICMP));
    else if (IS("ping")) echo(made(inet_target(), SOCK_DGRAM, IPPROTO_ICMP));
    else if (IS("packet")) {
        unsigned char out[512];
        inet_target();
        int s = made(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
        size_t len = datagram(out);
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = (int)if_nametoindex("lo"), .sll_halen = 6};
        must(sendto(s, out, len, 0, (void *)&ll, sizeof ll) >= 0, "sendto");
    } else if (IS("packet-old")) {
        unsigned char out[512] = {[12] = 8};
        inet_target();
        int s = made(AF_INET, SOCK_PACKET, htons(ETH_P_IP));
        size_t len = 14 + datagram(out + 14);
        struct sockaddr_pkt pkt = {.spkt_family = AF_PACKET, .spkt_device = "lo", .spkt_protocol = htons(ETH_P_IP)};
        must(sendto(s, out, len, 0, (void *)&pkt, sizeof pkt) >= 0, "sendto");
    } else if (IS("vsock")) {
        struct sockaddr_vm vm = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_LOCAL, .svm_port = (unsigned)atoi(address)};
        memcpy(&to, &vm, to_len = sizeof vm);
        connected(made(AF_VSOCK, SOCK_STREAM, 0));
    } else if (IS("netlink")) {
        struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_pid = (unsigned)atoi(address)};
        memcpy(&to, &nl, to_len = sizeof nl);
        by_sendto(made(AF_NETLINK, SOCK_DGRAM, NETLINK_USERSOCK), 0);
    } else if (IS("unix-stream")) unix_target(0), connected(made(AF_UNIX, SOCK_STREAM, 0));
    else if (IS("unix-seqpacket")) unix_target(0), connected(made(AF_UNIX, SOCK_SEQPACKET, 0));
    else if (IS("unix-datagram")) unix_target(0), by_sendto(made(AF_UNIX, SOCK_DGRAM, 0), 0);
    else if (IS("unix-datagram-sendmmsg")) unix_target(0), by_sendmmsg(made(AF_UNIX, SOCK_DGRAM, 0), 0);
    else if (IS("abstract-stream")) unix_target(1), connected(made(AF_UNIX, SOCK_STREAM, 0));
    else if (IS("abstract-datagram")) unix_target(1), by_sendto(made(AF_UNIX, SOCK_DGRAM, 0), 0);
    else if (IS("listen")) listening();
    else return 2;
    puts("sent");
    return 0;
}
