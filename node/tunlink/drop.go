package tunlink

import "sync/atomic"

// Drop is why a packet went nowhere. The names appear verbatim as metric labels.
type Drop uint8

const (
	// kept: the packet was passed on, or dealt with here.
	kept Drop = iota

	// DropEncapsulation: neither a valid Geneve nor a valid VXLAN header.
	DropEncapsulation
	// DropUnknownTunnel: outer source and VNI belong to no tunnel.
	DropUnknownTunnel
	// DropControl: a Geneve control packet (O bit).
	DropControl
	// DropFrame: not an Ethernet frame for us, or of another EtherType than IP and ARP.
	DropFrame
	// DropMalformed: not a well-formed IP packet, or not the super-segment that
	// its header of the device says.
	DropMalformed
	// DropECN: marked on the way (CE) instead of dropped, but its transport does not take
	// part in ECN (RFC 6040 section 4.2).
	DropECN
	// DropMulticast: what the node's own stack announces on every device.
	DropMulticast
	// DropUnresolved: the gateway's link-layer address is not known yet, and
	// what may wait for it is full.
	DropUnresolved
	// DropDevice: the kernel refused the packet from the gateway, for example because
	// the device is down.
	DropDevice

	numDrops
)

var dropNames = [numDrops]string{
	kept:              "Kept",
	DropEncapsulation: "DropEncapsulation",
	DropUnknownTunnel: "DropUnknownTunnel",
	DropControl:       "DropControl",
	DropFrame:         "DropFrame",
	DropMalformed:     "DropMalformed",
	DropECN:           "DropECN",
	DropMulticast:     "DropMulticast",
	DropUnresolved:    "DropUnresolved",
	DropDevice:        "DropDevice",
}

// String returns the name as it stands above.
func (d Drop) String() string { return dropNames[d] }

// Drops returns every Drop.
func Drops() []Drop {
	var ds []Drop
	for d := kept + 1; d < numDrops; d++ {
		ds = append(ds, d)
	}
	return ds
}

// dropCounters count packets by the reason why they went nowhere.
type dropCounters [numDrops]atomic.Uint64

func (c *dropCounters) add(d Drop, n int) { c[d].Add(uint64(n)) }

// named returns the counters that are not zero.
func (c *dropCounters) named() map[string]uint64 {
	m := make(map[string]uint64)
	for _, d := range Drops() {
		if n := c[d].Load(); n > 0 {
			m[d.String()] = n
		}
	}
	return m
}
