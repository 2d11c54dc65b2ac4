package kubernetes

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-net/sluice/test/kubelab"
)

// timeline writes down what happens where while a gateway is replaced: objects as
// an observer of the API server sees them, rules of kube-proxies, handshakes on
// the WAN. It is for whoever wants to know where the time goes (-kubernetes.timeline).
type timeline struct {
	start time.Time
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu     sync.Mutex
	events []moment
}

type moment struct {
	at   time.Time
	text string
}

// watched are the objects that tell of a replacement, and what of them is worth
// a line.
var watched = []struct {
	resource schema.GroupVersionResource
	selector string
	tell     func(*unstructured.Unstructured) string
}{
	{schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "networking.liqo.io/gateway-name", func(o *unstructured.Unstructured) string {
		return "holder " + text(o, "spec", "holderIdentity")
	}},
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "networking.liqo.io/component=gateway", func(o *unstructured.Unstructured) string {
		ended := ""
		if o.GetDeletionTimestamp() != nil {
			ended = " is to end"
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
				ended += fmt.Sprintf(" ready=%v", c["status"])
			}
		}
		return text(o, "status", "phase") + " " + text(o, "status", "podIP") + " active=" + o.GetLabels()["networking.liqo.io/active"] + ended
	}},
	{schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, "networking.liqo.io/component=gateway", func(o *unstructured.Unstructured) string {
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "endpoints")
		var all []string
		for _, e := range endpoints {
			if e, ok := e.(map[string]any); ok {
				all = append(all, fmt.Sprint(e["addresses"], e["conditions"]))
			}
		}
		return strings.Join(all, ", ")
	}},
	{schema.GroupVersionResource{Group: "networking.liqo.io", Version: "v1beta1", Resource: "internalfabrics"}, "", func(o *unstructured.Unstructured) string {
		return text(o, "spec", "gatewayIP")
	}},
	{schema.GroupVersionResource{Group: "networking.liqo.io", Version: "v1beta1", Resource: "connections"}, "", func(o *unstructured.Unstructured) string {
		return text(o, "status", "value")
	}},
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// startTimeline begins to write.
func (w *world) startTimeline(t *testing.T) *timeline {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &timeline{start: time.Now(), stop: stop}
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		objects, err := dynamic.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range watched {
			events, err := objects.Resource(kind.resource).Watch(ctx, metav1.ListOptions{LabelSelector: kind.selector})
			if err != nil {
				t.Fatal(err)
			}
			told := map[string]string{}
			l.work.Go(func() {
				for e := range events.ResultChan() {
					o, ok := e.Object.(*unstructured.Unstructured)
					if !ok {
						continue
					}
					if line := string(e.Type) + " " + kind.tell(o); told[o.GetName()] != line {
						told[o.GetName()] = line
						l.note(time.Now(), "%s: %s %s: %s", c.Name, kind.resource.Resource, o.GetName(), line)
					}
				}
			})
		}
		for _, n := range c.Nodes {
			l.follow(ctx, n, nodePort, "nft", "-nn", "monitor", "elements")
			l.follow(ctx, n, "liqo", "ip", "-d", "monitor", "link", "neigh")
		}
		l.wireGuard(t, ctx, c)
	}
	return l
}

func (l *timeline) note(at time.Time, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, moment{at, fmt.Sprintf(format, args...)})
}

// follow notes the lines of a program on a node that hold a word.
func (l *timeline) follow(ctx context.Context, n *kubelab.Node, word string, args ...string) {
	cmd := exec.Command("ip", append([]string{"netns", "exec", n.Host.Namespace()}, args...)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.note(time.Now(), "%s: %s: %v", n.Name, args[0], err)
		return
	}
	context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	l.work.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), word) {
				l.note(time.Now(), "%s: %s: %s", n.Name, args[0], lines.Text())
			}
		}
		_ = cmd.Wait()
	})
}

// wireGuard notes the handshakes that leave or enter a cluster, and the first
// packet after a pause.
func (l *timeline) wireGuard(t *testing.T, ctx context.Context, c *kubelab.Cluster) {
	t.Helper()
	last := map[string]time.Time{}
	s := sniff(t, c.Router, "wan0")
	l.work.Go(func() {
		<-ctx.Done()
		for _, f := range s.all() {
			p := gopacket.NewPacket(f.data, layers.LayerTypeEthernet, gopacket.NoCopy)
			u, ok := p.TransportLayer().(*layers.UDP)
			if !ok || len(u.Payload) < 4 {
				continue
			}
			from := fmt.Sprintf("%v:%d", p.NetworkLayer().NetworkFlow(), u.SrcPort)
			kind := binary.LittleEndian.Uint32(u.Payload)
			if kind < 4 || f.at.Sub(last[from]) > 100*time.Millisecond {
				l.note(f.at, "%s router: WireGuard message %d, %d bytes, %s to %d, after %v", c.Name, kind, len(u.Payload), from, u.DstPort, f.at.Sub(last[from]).Round(time.Millisecond))
			}
			last[from] = f.at
		}
	})
}

// tell ends the timeline and logs it.
func (l *timeline) tell(t *testing.T, name string) {
	t.Helper()
	l.stop()
	l.work.Wait()
	slices.SortStableFunc(l.events, func(a, b moment) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, e := range l.events {
		fmt.Fprintf(&b, "%8.3f %s\n", e.at.Sub(l.start).Seconds(), e.text)
	}
	t.Logf("timeline of %s, from %s:\n%s", name, l.start.UTC().Format("15:04:05.000"), b.String())
}
