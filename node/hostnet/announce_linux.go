package hostnet

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// announcer sends a first datagram into new tunnels, so that the kernel finds
// the gateway, and the gateway the node, before anybody waits for it.
type announcer struct{ fd4, fd6 int }

func openAnnouncer() announcer {
	open := func(family int) int {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return -1
		}
		return fd
	}
	return announcer{open(unix.AF_INET), open(unix.AF_INET6)}
}

func (a *announcer) close() {
	for _, fd := range []*int{&a.fd4, &a.fd6} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
		*fd = -1
	}
}

// discard is the port for datagrams that nobody is to read (RFC 863).
const discard = 9

// announce does its best: without it, the first packet takes a little longer.
func (a *announcer) announce(index int, from, to netip.Addr) {
	if from.Is4() {
		control := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(index), Spec_dst: from.As4()})
		_ = unix.Sendmsg(a.fd4, nil, control, &unix.SockaddrInet4{Port: discard, Addr: to.As4()}, 0)
		return
	}
	control := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: uint32(index), Addr: from.As16()})
	_ = unix.Sendmsg(a.fd6, nil, control, &unix.SockaddrInet6{Port: discard, Addr: to.As16()}, 0)
}
