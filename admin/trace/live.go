package trace

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/pcapng"
)

// Sight is how many matching packets were seen at a point: see the points of
// `gateway capture`, and those of a node below.
type Sight struct {
	Point   string `json:"point"`
	Packets uint64 `json:"packets"`
}

// Points of a gateway.
const (
	pointNode       = "node"
	pointTranslated = "translated"
	pointTunnel     = "tunnel"
	pointDropped    = "dropped"
)

// Points of a node.
const (
	pointPod  = "pod"  // between pod and node
	pointLink = "link" // between node and the link to the gateway
)

// place is where packets with some addresses are looked for.
type place struct {
	cluster  string
	point    string
	outbound bool
	src, dst netip.Addr
}

// watcher is what watches: the gateway of a cluster, or the agent of a node.
type watcher struct {
	cluster string
	node    bool
}

func (p *place) watcher() watcher {
	return watcher{p.cluster, p.point == pointPod || p.point == pointLink}
}

// tally is what was seen at a place.
type tally struct {
	packets uint64
	udp     uint64 // of packets; of nodes only
	// due are those that have had time to reach the next place, asking those of them that
	// should be answered.
	due, asking uint64
	reason      string // for which the last packet was dropped
}

// stage is a place on the path, and the hop that it belongs to.
type stage struct {
	place
	hop *Hop
	// last: it is the last place in its direction.
	last bool
}

// dropped is the place where the gateway shows the packets of a stage that it drops.
func (s *stage) dropped() place {
	p := s.place
	p.point = pointDropped
	return p
}

// stages are the places on the path of a packet and of its answer, in order.
func stages(way *Way) (out []stage) {
	var src, dst netip.Addr // as the packet reaches a hop
	for _, hops := range [][]Hop{way.There, way.Back} {
		outbound := len(hops) > 0 && hops[0].Kind != "translation"
		for i := range hops {
			h := &hops[i]
			add := func(point string, src, dst netip.Addr) {
				if src.IsValid() && dst.IsValid() {
					out = append(out, stage{place: place{h.Cluster, point, outbound, src, dst}, hop: h})
				}
			}
			switch {
			case h.Kind == "node" && outbound:
				add(pointPod, h.Source, h.Destination)
				add(pointLink, h.Source, h.Destination)
			case h.Kind == "node":
				add(pointLink, h.Source, h.Destination)
				add(pointPod, h.Source, h.Destination)
			case h.Kind == "gateway":
				add(pointNode, h.Source, h.Destination)
			case h.Kind == "translation" && !outbound:
				add(pointTunnel, src, dst)
				add(pointTranslated, h.Source, h.Destination)
			case h.Kind == "translation":
				add(pointTranslated, h.Source, h.Destination)
			case h.Kind == "tunnel":
				add(pointTunnel, h.Source, h.Destination)
				outbound = false
			}
			src, dst = h.Source, h.Destination
		}
		if len(out) > 0 {
			out[len(out)-1].last = true
		}
		src, dst = dst, src // the answer
	}
	return out
}

// capturing runs a command in a pod of a gateway or an agent until ctx ends.
type capturing func(ctx context.Context, argv []string, to io.Writer) error

// watch counts packets in gateways and on nodes, all during the same time.
type watch struct {
	stages   []stage
	port     uint16
	gateways map[string]capturing // by cluster
	nodes    map[string]*node     // by cluster

	mu    sync.Mutex
	begun map[watcher]bool
	// waiting is how many watchers must begin.
	waiting int
	// counting is on while all watch: a packet seen then can be seen at the next place. It
	// is late when a packet may no longer reach the next place, over when the watch ends.
	counting, late, over bool
	started              chan struct{} // closed when counting begins
	tallies              map[place]*tally
	failed               map[watcher]error
	took                 time.Duration
}

func newWatch(way *Way, port uint16) *watch {
	w := &watch{
		stages: stages(way), port: port, gateways: make(map[string]capturing), nodes: make(map[string]*node),
		begun: make(map[watcher]bool), started: make(chan struct{}), tallies: make(map[place]*tally), failed: make(map[watcher]error),
	}
	for _, s := range w.stages {
		w.tallies[s.place] = &tally{}
		w.tallies[s.dropped()] = &tally{}
	}
	return w
}

// filter chooses the packets at all places of a cluster.
func (w *watch) filter(cluster string) string {
	var pairs []string
	for _, s := range w.stages {
		pair := fmt.Sprintf("(src host %s and dst host %s)", s.src, s.dst)
		if s.watcher() == (watcher{cluster: cluster}) && !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	filter := "(" + strings.Join(pairs, " or ") + ")"
	if w.port != 0 {
		filter += fmt.Sprintf(" and port %d", w.port)
	}
	return filter
}

// MinLive and MaxLive bound how long gateways are watched.
const (
	MinLive = 2 * time.Second
	MaxLive = 5 * time.Minute
)

// Bounds of a capture. Its output comes from another program, so it is bounded here as
// well: nothing but counts is kept.
const (
	// startTimeout is how long a gateway may take to start capturing.
	startTimeout = 15 * time.Second
	// nodeTimeout is the same for an agent. It is shorter, as gateways show most.
	nodeTimeout = 10 * time.Second
	// underway is how long a packet may take from one place to the next.
	underway = time.Second
	// enough is how many packets distinguish a fault from an occasional loss.
	enough = 3
	// maxCapture is the most that a gateway sends: at least a second of the largest flow. It
	// then stops early, but by that time it is known whether packets reach a point.
	maxCapture = "50MB"
)

// run watches for some time.
func (w *watch) run(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runs := make(map[watcher]func() error)
	for cluster, capture := range w.gateways {
		who := watcher{cluster: cluster}
		if !slices.ContainsFunc(w.stages, func(s stage) bool { return s.watcher() == who }) {
			delete(w.gateways, cluster)
			continue
		}
		argv := []string{gatewayProgram, "capture", "-w", "-", "--until-eof", "--point", strings.Join([]string{pointNode, pointTranslated, pointTunnel, pointDropped}, ","),
			"--duration", (d + 2*startTimeout).String(), "--snaplen", "64", "--max-size", maxCapture, "--filter", w.filter(cluster)}
		c := pcapng.NewCopier(&arrivals{w, who, pcapng.Reader{Each: func(i pcapng.Interface, p *pcapng.Packet) { w.count(cluster, &i, p) }}})
		runs[who] = func() error { return capture(ctx, argv, c) }
	}
	for cluster, n := range w.nodes {
		if n.capture != nil && n.aim(w.stages, cluster) {
			runs[watcher{cluster, true}] = func() error {
				return n.capture(ctx, n.argv(w.port, d+2*startTimeout), &numbers{watch: w, cluster: cluster, node: n})
			}
		}
	}
	if len(runs) == 0 {
		return
	}
	w.waiting = len(runs)
	defer time.AfterFunc(nodeTimeout, w.leaveNodes).Stop()
	var all sync.WaitGroup
	for who, run := range runs {
		all.Go(func() { w.ended(who, run()) })
	}
	select {
	case <-w.started:
		began := time.Now()
		access.Pause(ctx, max(d-underway, 0))
		w.mu.Lock()
		w.late = true
		w.mu.Unlock()
		access.Pause(ctx, underway)
		w.took = time.Since(began).Round(time.Second)
	case <-time.After(startTimeout):
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	cancel()
	all.Wait()
}

// arrivals notes when a capture begins.
type arrivals struct {
	watch  *watch
	who    watcher
	reader pcapng.Reader
}

func (a *arrivals) Write(b []byte) (int, error) {
	a.watch.began(a.who)
	return a.reader.Write(b)
}

// began notes that a watcher has begun, or that it will not.
func (w *watch) began(who watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beganLocked(who)
}

func (w *watch) beganLocked(who watcher) {
	w.begun[who] = true
	if len(w.begun) == w.waiting && !w.counting {
		w.counting = true
		close(w.started)
	}
}

// ended notes that a watcher has ended. Without its last numbers nothing can be said of a
// node.
func (w *watch) ended(who watcher, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.begun[who] && err == nil: // ctx has ended
		err = fmt.Errorf("it did not answer within %v", startTimeout)
		fallthrough
	case !w.begun[who]:
		w.failed[who] = err
	case who.node && !w.over && w.failed[who] == nil:
		w.failed[who] = cmp.Or(err, errShort)
	}
	w.beganLocked(who)
}

// count notes a packet.
func (w *watch) count(cluster string, i *pcapng.Interface, p *pcapng.Packet) {
	src, dst, protocol, ok := headers(i.Link, p.Data)
	if !ok {
		return
	}
	point, _, _ := strings.Cut(i.Name, ":") // node:NAME
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tallies[place{cluster, point, p.Direction == pcapng.Outbound, src, dst}]
	if t == nil {
		return
	}
	t.packets++
	if point == pointDropped {
		t.reason = p.Comment
	}
	if !w.counting || w.late {
		return
	}
	t.due++
	const udp = 17
	if protocol != udp {
		t.asking++
	}
}

// headers reads the fields of a packet by which it is counted.
func headers(link pcapng.LinkType, b []byte) (src, dst netip.Addr, protocol byte, ok bool) {
	if link == pcapng.Ethernet {
		const header = 14
		if len(b) < header {
			return src, dst, 0, false
		}
		switch binary.BigEndian.Uint16(b[12:]) {
		case 0x0800, 0x86dd:
			b = b[header:]
		default:
			return src, dst, 0, false
		}
	}
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
		return src, dst, b[9], true
	case len(b) >= 40 && b[0]>>4 == 6:
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
		return src, dst, b[6], true
	}
	return src, dst, 0, false
}

// judge adds to the hops what was seen, and where packets stop.
func (w *watch) judge(way *Way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var before *tally // of the previous stage
	var last *stage
	told := make(map[string]bool)
	for i := range w.stages {
		s := &w.stages[i]
		if s.watcher().node {
			if why := w.notCounted(i); why != "" {
				s.hop.NotCounted = cmp.Or(s.hop.NotCounted, plain(why))
				continue // as if there were no such place
			}
		} else if w.gateways[s.cluster] == nil {
			continue
		}
		if err := w.failed[s.watcher()]; err != nil {
			if !told[s.cluster] {
				told[s.cluster] = true
				s.hop.Unknown = cmp.Or(s.hop.Unknown, plain("packets cannot be watched here: "+err.Error()))
			}
			before = nil // nothing can be said of what follows
			continue
		}
		t := w.tallies[s.place]
		s.hop.Live = append(s.hop.Live, Sight{s.point, t.packets})
		d := w.tallies[s.dropped()]
		if d.packets > 0 {
			s.hop.Live = append(s.hop.Live, Sight{pointDropped, d.packets})
		}
		switch {
		case way.Stop() != nil:
		case d.packets >= enough && d.packets >= t.packets:
			reason, known := drops.Explain(d.reason)
			if !known {
				reason.Name = "a reason that this version does not know"
			}
			s.hop.Problem = &Problem{fmt.Sprintf("the gateway dropped %d matching packets within %v: %s", d.packets, w.took, reason.Name), reason.Cause, reason.Fix}
		case before == nil && last == nil && t.packets == 0:
			s.hop.Unknown = cmp.Or(s.hop.Unknown, fmt.Sprintf("no matching packet arrived here within %v: send some from the pod meanwhile", w.took))
		case before != nil && t.packets == 0:
			s.hop.Problem = w.missing(last, s, before)
		}
		before, last = t, s
	}
}

// missing explains why packets were seen at one place but not at the next; nil if they are
// too few to tell.
func (w *watch) missing(from, to *stage, before *tally) *Problem {
	p := &Problem{Message: fmt.Sprintf("within %v, %d matching packets were seen at %s but none here", w.took, before.due, from.name())}
	switch {
	case to.outbound && !from.outbound, !to.outbound && from.outbound && to.cluster == from.cluster: // the answer
		if before.asking < enough {
			return nil
		}
		p.Message = fmt.Sprintf("within %v, %d matching packets were seen at %s but no answer here", w.took, before.asking, from.name())
		p.Cause = "the pod does not answer, or a NetworkPolicy or the node drops the packets"
		p.Fix = "check whether something listens there, and see " + seePolicies
		if to.cluster == from.cluster && to.cluster == access.Local && from.outbound {
			p.Cause, p.Fix = "the packets stop in the other cluster", "name that cluster with --remote-kubeconfig or --remote-context"
		}
	case before.due < enough:
		return nil
	case to.cluster != from.cluster:
		p.Cause, p.Fix = "the packets are lost between the gateways, or WireGuard in the other gateway rejects them", "see 'liqoctl network doctor', check reachability, and 'liqoctl network capture --point wire' at both ends"
	case from.point == pointPod:
		p.Cause, p.Fix = "the node does not send the packets into the link: a NetworkPolicy or a firewall drops them, or another route of the node takes them", "see "+seePolicies+"; "+seeFabric
	case to.point == pointPod:
		p.Cause, p.Fix = "the node does not deliver the packets to the pod: a NetworkPolicy, a firewall or the node's source address check drops them", "see "+seePolicies
	case from.watcher().node != to.watcher().node:
		p.Cause, p.Fix = "the packets are lost between the node and the gateway, or the node changes their source address", seeFabric+"; "+allowGeneve
	default:
		p.Cause, p.Fix = "the gateway does not forward the packets", "see 'liqoctl network drops'"
	}
	return p
}

const (
	seePolicies = "'kubectl get networkpolicies -A'"
	allowGeneve = "allow UDP 6091 between nodes and gateway pods in firewalls and NetworkPolicies"
)

// name names a stage in messages.
func (s *stage) name() string {
	if s.watcher().node {
		return fmt.Sprintf("point %s of the %s node", s.point, s.cluster)
	}
	return fmt.Sprintf("point %s of the %s gateway", s.point, s.cluster)
}
