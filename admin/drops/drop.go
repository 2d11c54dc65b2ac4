package drops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Drop is a packet that a gateway dropped, as `gateway drops -o json` prints it: see
// dataplane/dropped.Packet.
type Drop struct {
	Number          uint64     `json:"number"`
	Time            time.Time  `json:"time"`
	Direction       string     `json:"direction"` // Egress, Ingress
	Reason          string     `json:"reason"`
	Node            string     `json:"node,omitempty"`
	VNI             uint32     `json:"vni,omitempty"`
	Outer           bool       `json:"outer,omitempty"`
	Source          netip.Addr `json:"source,omitzero"`
	Destination     netip.Addr `json:"destination,omitzero"`
	Protocol        uint8      `json:"protocol"`
	SourcePort      uint16     `json:"sourcePort,omitempty"`
	DestinationPort uint16     `json:"destinationPort,omitempty"`
	TCPFlags        uint8      `json:"tcpFlags,omitempty"`
	Length          int        `json:"length"` // bytes
	Total           uint64     `json:"total,omitempty"`
}

// Directions of a Drop: to the peer, and from it.
const (
	Egress  = "egress"
	Ingress = "ingress"
)

// maxLine bounds a line of the answer, in bytes: four times what a gateway writes.
const maxLine = 4 << 10

// Decoder calls Each for every Drop that is written to it as a line of JSON. It keeps
// no more than one line.
type Decoder struct {
	Each func(Drop) error

	partial []byte // the beginning of a line
}

// Write implements io.Writer. It fails if a line is not a gateway's, or if Each fails.
func (d *Decoder) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if len(d.partial)+len(line) > maxLine {
			return 0, errNoDrop
		}
		d.partial = append(d.partial, line...)
		if !ended {
			break
		}
		drop, err := parse(d.partial)
		d.partial, b = d.partial[:0], rest
		if err == nil {
			err = d.Each(drop)
		}
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// errNoDrop is all that is said about an answer that is not understood: its text is not
// trusted.
var errNoDrop = errors.New("this version does not understand the answer of 'gateway drops'")

var (
	reasonForm = regexp.MustCompile(`^Drop[A-Za-z]{1,60}$`)
	nodeForm   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

func parse(line []byte) (d Drop, err error) {
	if err := json.Unmarshal(line, &d); err != nil {
		return Drop{}, errNoDrop
	}
	switch {
	case !reasonForm.MatchString(d.Reason),
		d.Node != "" && !nodeForm.MatchString(d.Node),
		d.Direction != Egress && d.Direction != Ingress,
		d.Source.Zone() != "", d.Destination.Zone() != "", // any text may stand there
		d.Length < 0:
		return Drop{}, errNoDrop
	}
	return d, nil
}

// String tells of d in one line, without its time.
func (d Drop) String() string {
	way := "to the peer"
	if d.Direction == Ingress {
		way = "from the peer"
	}
	parts := []string{fmt.Sprintf("%-24s  %-13s  %s", d.Reason, way, d.headers()), fmt.Sprintf("%d bytes", d.Length)}
	if d.Node != "" {
		parts = append(parts, "node "+d.Node)
	}
	if d.Total > 1 {
		parts = append(parts, fmt.Sprintf("%d of this reason so far", d.Total))
	}
	return strings.Join(parts, ", ")
}

// headers are protocol, addresses, ports and flags.
func (d Drop) headers() string {
	if !d.Source.IsValid() || !d.Destination.IsValid() {
		return "not IP"
	}
	out := fmt.Sprintf("%s %s > %s", protocolName(d.Protocol), d.endpoint(d.Source, d.SourcePort), d.endpoint(d.Destination, d.DestinationPort))
	if flags := d.flags(); flags != "" {
		out += " " + flags
	}
	if d.Outer {
		out += " (outer addresses)"
	}
	return out
}

func (d Drop) endpoint(a netip.Addr, port uint16) string {
	if d.SourcePort == 0 && d.DestinationPort == 0 || d.Protocol == protoICMP || d.Protocol == protoICMPv6 {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// Protocol numbers (IANA "Assigned Internet Protocol Numbers").
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

func protocolName(n uint8) string {
	switch n {
	case protoICMP:
		return "ICMP"
	case 6:
		return "TCP"
	case 17:
		return "UDP"
	case protoICMPv6:
		return "ICMPv6"
	case 132:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", n)
}

// flags are the names of the TCP flags (RFC 9293 section 3.1).
func (d Drop) flags() string {
	var set []string
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"} {
		if d.TCPFlags&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	return strings.Join(set, ",")
}

// Filter chooses drops by reason; without reasons, all.
type Filter []string

// ParseFilter reads names of reasons. "NoMapping" is also DropNoMapping.
func ParseFilter(names []string) (Filter, error) {
	var f Filter
	for _, name := range names {
		full := name
		if !strings.HasPrefix(name, "Drop") {
			full = "Drop" + name
		}
		if _, known := Explain(full); !known {
			return nil, fmt.Errorf("unknown reason %q; the reasons are %s", name, strings.Join(Reasons(), ", "))
		}
		f = append(f, full)
	}
	return f, nil
}

// Has tells whether f chooses a reason.
func (f Filter) Has(reason string) bool { return len(f) == 0 || slices.Contains(f, reason) }
