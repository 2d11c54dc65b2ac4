package main

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/pcapng"
)

// captureFile makes blocks of a capture file. Each point is an interface; what comes
// from or goes to a node has one of its own for each node, which is described
// when its first packet comes.
type captureFile struct {
	request captureRequest
	started time.Time
	// interfaces holds the number of each, points those of the interfaces that
	// stand for a whole point.
	interfaces map[captureInterface]uint32
	points     map[capture.Point]uint32
	packets    uint64
}

// captureInterface is what packets of one interface have in common.
type captureInterface struct {
	point capture.Point
	link  capture.Link
	node  string
	vni   uint32
}

// pointTexts describe the points in the file.
var pointTexts = [capture.NumPoints]string{
	capture.Node:       "from and to the nodes, inside of Geneve or VXLAN",
	capture.Translated: "after the translation of addresses",
	capture.Tunnel:     "inside of WireGuard, as the peer sees it",
	capture.Wire:       "WireGuard between the gateways; IP and UDP headers are made up",
	capture.Dropped:    "dropped, with the reason as comment",
}

// newCaptureFile returns a file with its beginning.
func newCaptureFile(r captureRequest, now time.Time) (*captureFile, []byte) {
	f := &captureFile{request: r, started: now, interfaces: make(map[captureInterface]uint32), points: make(map[capture.Point]uint32)}
	b := pcapng.AppendSection(nil, "sluice gateway "+daemon.Version(version), "Outbound is on the way to the peer, inbound from it.")
	for _, p := range r.Points.All() {
		key := captureInterface{point: p}
		if p == capture.Node {
			key.link = capture.Ethernet
		}
		f.points[p], b = f.add(b, key, p.String(), pointTexts[p])
	}
	return f, b
}

// add appends the description of one more interface.
func (f *captureFile) add(b []byte, key captureInterface, name, description string) (uint32, []byte) {
	n := uint32(len(f.interfaces))
	f.interfaces[key] = n
	link := pcapng.RawIP
	if key.link == capture.Ethernet {
		link = pcapng.Ethernet
	}
	return n, pcapng.AppendInterface(b, pcapng.Interface{
		Name: name, Description: description, Link: link, Snaplen: uint32(f.request.Snaplen), Filter: f.request.filterText(),
	})
}

// packet appends a packet and, if need be, its interface.
func (f *captureFile) packet(b []byte, r *capture.Record) []byte {
	// Written so that looking up makes no string.
	n, ok := f.interfaces[captureInterface{r.Point, r.Link, string(r.Node), r.VNI}]
	if !ok {
		key := captureInterface{r.Point, r.Link, string(r.Node), r.VNI}
		n, b = f.add(b, key, key.name(), key.description())
	}
	p := pcapng.Packet{
		Interface: n, Time: r.Time.UnixNano(), Data: r.Data, Length: uint32(r.Length),
		Direction: pcapng.Inbound, Comment: string(r.Reason),
	}
	if r.Egress {
		p.Direction = pcapng.Outbound
	}
	f.packets++
	return pcapng.AppendPacket(b, &p)
}

func (i captureInterface) name() string {
	if i.node == "" {
		return i.point.String()
	}
	return i.point.String() + ":" + i.node
}

func (i captureInterface) description() string {
	if i.node == "" && i.vni == 0 {
		return pointTexts[i.point]
	}
	return fmt.Sprintf("node %s, VNI %d", i.node, i.vni)
}

// statistics appends what has happened at each point so far. Why it ended is empty
// while it goes on.
func (f *captureFile) statistics(b []byte, c *capture.Capture, now time.Time, ended string) []byte {
	for _, p := range f.request.Points.All() {
		n := c.Counts(p)
		s := pcapng.Statistics{
			Interface: f.points[p], Time: now.UnixNano(), Start: f.started.UnixNano(),
			Received: n.Seen, Accepted: n.Matched, Dropped: n.Lost, Comment: ended,
		}
		if ended != "" {
			s.Stop = s.Time
		}
		b = pcapng.AppendStatistics(b, s)
	}
	return b
}
