package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// node is a node on the path whose agent counts packets.
type node struct {
	capture capturing
	link    string
	// failed is why it cannot be queried; then there is no capture.
	failed    string
	pod, peer netip.Addr
	// steady: the last numbers came while all watched, so packets counted since then could be
	// seen everywhere.
	steady bool
}

// counting tells on which link of a pod's node packets can be counted, and in which agent's
// pod, or why they cannot.
func (s *Side) counting(end *Pod) (link string, agent types.NamespacedName, why string) {
	if end == nil || end.Node == "" {
		return "", agent, "the pod's node is not known"
	}
	a := s.Agents[end.Node]
	switch {
	case end.HostNetwork:
		return "", agent, "the pod uses the node's own address"
	case a.Report == nil || s.Peer == nil || s.Peer.Fabric == nil:
		return "", agent, "the node's agent cannot be queried"
	}
	t := s.link(a.Report)
	if t == nil {
		return "", agent, "the node has no link to the gateway"
	}
	return t.Name, a.Pod, ""
}

// aim takes the addresses from the stages, and tells whether the path includes the node.
func (n *node) aim(stages []stage, cluster string) bool {
	i := slices.IndexFunc(stages, func(s stage) bool { return s.watcher() == watcher{cluster, true} })
	if i < 0 {
		return false
	}
	if n.pod, n.peer = stages[i].src, stages[i].dst; !stages[i].outbound {
		n.pod, n.peer = n.peer, n.pod
	}
	return true
}

// argv is the command in the agent's pod.
func (n *node) argv(port uint16, d time.Duration) []string {
	return []string{fabricProgram, "count", "--until-eof", "--link=" + n.link, "--pod=" + n.pod.String(), "--peer=" + n.peer.String(),
		"--port=" + strconv.Itoa(int(port)), "--duration=" + d.String()}
}

var (
	errShort     = errors.New("its agent stopped counting too early")
	errNoNumbers = errors.New("this version does not understand the answer of its agent")
)

// maxLine bounds a line of an agent.
const maxLine = 16 << 10

// numbers reads what an agent counts, line by line.
type numbers struct {
	watch   *watch
	cluster string
	node    *node
	partial []byte
}

// passed is what has passed a node at a point so far.
type passed struct {
	Point    string `json:"point"`
	Outbound bool   `json:"outbound"`
	Packets  uint64 `json:"packets"`
	UDP      uint64 `json:"udp"`
}

var _ io.Writer = (*numbers)(nil)

func (n *numbers) Write(b []byte) (int, error) {
	n.partial = append(n.partial, b...)
	for {
		line, rest, whole := bytes.Cut(n.partial, []byte{'\n'})
		if !whole {
			break
		}
		var l struct {
			Passed []passed `json:"passed"`
		}
		if len(line) > maxLine || json.Unmarshal(line, &l) != nil || len(l.Passed) == 0 {
			return 0, errNoNumbers
		}
		n.watch.counted(n.cluster, n.node, l.Passed)
		n.partial = rest
	}
	if len(n.partial) > maxLine {
		return 0, errNoNumbers
	}
	n.partial = slices.Clone(n.partial)
	return len(b), nil
}

// counted notes the numbers of a node.
func (w *watch) counted(cluster string, n *node, numbers []passed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beganLocked(watcher{cluster, true})
	for _, p := range numbers {
		at := place{cluster, p.Point, p.Outbound, n.pod, n.peer}
		if !p.Outbound {
			at.src, at.dst = at.dst, at.src
		}
		t := w.tallies[at]
		if t == nil || !at.watcher().node || p.Packets < t.packets || p.UDP < t.udp || p.Packets-t.packets < p.UDP-t.udp {
			continue
		}
		more, udp := p.Packets-t.packets, p.UDP-t.udp
		t.packets, t.udp = p.Packets, p.UDP
		if n.steady && !w.late {
			t.due += more
			t.asking += more - udp
		}
	}
	n.steady = w.counting
}

// leaveNodes goes on without the nodes whose agents do not answer.
func (w *watch) leaveNodes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for cluster, n := range w.nodes {
		who := watcher{cluster, true}
		if n.pod.IsValid() && !w.begun[who] {
			w.failed[who] = fmt.Errorf("its agent did not answer within %v", nodeTimeout)
			w.beganLocked(who)
		}
	}
}

// notCounted is why packets were not counted at a stage of a node, empty if they were.
func (w *watch) notCounted(i int) string {
	s := &w.stages[i]
	n := w.nodes[s.cluster]
	if n == nil {
		return "its agent was not queried"
	}
	if n.failed != "" {
		return n.failed
	}
	if err := w.failed[s.watcher()]; err != nil {
		if strings.Contains(err.Error(), `unknown command "count"`) {
			return "the version of its agent cannot count packets"
		}
		return err.Error()
	}
	if w.tallies[s.place].packets > 0 {
		return ""
	}
	// Packets seen further on must have passed here, although none was counted. An answer
	// proves that only for the last place before the pod: elsewhere it may belong to what the
	// other pod asks.
	for j := i; j+1 < len(w.stages) && (!w.stages[j].last || j == i); j++ {
		if w.tallies[w.stages[j+1].place].packets > 0 {
			return "packets take a path through the node that its kernel does not count, such as eBPF programs of the CNI"
		}
	}
	return ""
}
