package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// CountTable begins the name of the nftables tables, of family inet, that count the
// packets of a Flow. The kernel removes such a table with the socket that made it.
const CountTable = "sluice-fabric-count-"

// Flow is what a Counter counts: packets between a pod of this node and an address
// that a tunnel link leads to.
type Flow struct {
	// Link is the name of the tunnel link.
	Link      string
	Pod, Peer netip.Addr
	// Port is that of either end, of TCP, UDP or SCTP. Zero: all packets.
	Port uint16
}

// Check finds what no tunnel of this node can carry.
func (f Flow) Check() error {
	name, ours := strings.CutPrefix(f.Link, LinkPrefix)
	switch {
	case !ours || name == "" || len(f.Link) > maxName || strings.ContainsFunc(f.Link, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:%", r) }):
		return fmt.Errorf("link %q is not the name of a tunnel link", f.Link)
	case !usable(f.Pod) || !usable(f.Peer):
		return errors.New("pod and peer must be addresses of hosts")
	case f.Pod.Is4() != f.Peer.Is4():
		return errors.New("pod and peer must be addresses of one family")
	case f.Pod == f.Peer:
		return errors.New("pod and peer are one address")
	}
	return nil
}

// Passed are the packets of a Flow that have passed this node at a point.
type Passed struct {
	// Point is "pod", between pod and node, or "link", between node and tunnel link.
	Point string `json:"point"`
	// Outbound packets come from the pod, others go to it.
	Outbound bool   `json:"outbound"`
	Packets  uint64 `json:"packets"`
	// UDP are those of Packets that need no answer.
	UDP uint64 `json:"udp"`
}
