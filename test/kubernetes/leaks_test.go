package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// inventory is everything that must be as before when nothing has happened, and
// what the parts of ours that run use.
type inventory struct {
	things []string
	usage  map[string]usage // by pod
	flows  map[string]int   // of the kernel, by node
}

// usage is what a pod holds.
type usage struct {
	rss         int64
	files       int
	descendants int
}

// testInventory notes what there is of clusters that are apart, and testNothingGrows
// wants it to be the same after the parts between them, each of which has connected and
// separated the clusters in another way.
func testInventory(t *testing.T, w *world) {
	w.atRest(t)
	i := takeInventory(t, w)
	w.before = &i
}

func testNothingGrows(t *testing.T, w *world) {
	if w.before == nil {
		t.Fatal("there is nothing to compare with: run inventory, too")
	}
	w.atRest(t)
	t.Log(w.before.growth(w.before.compare(t, w)))
}

// atRest brings the clusters apart, and has the pods of tests in their usual number.
func (w *world) atRest(t *testing.T) {
	t.Helper()
	w.apart(t)
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		w.servers(t, c, 2)
		w.clients(t, c, 2)
	}
}

func takeInventory(t *testing.T, w *world) (i inventory) {
	t.Helper()
	lab.Eventually(t, patience, "an inventory", func() (err error) {
		if i, err = w.inventory(t.Context()); err != nil {
			return err
		}
		if n := slices.IndexFunc(i.things, traceOfPeer); n >= 0 {
			return errors.New("still there: " + i.things[n])
		}
		return nil
	})
	return i
}

// traceOfPeer tells whether a thing goes some time after a peer: its ForeignCluster, and the chains and elements of its
// gateway's Service, which kube-proxy takes away in its own time: without endpoints first, then altogether.
func traceOfPeer(thing string) bool {
	return strings.Contains(thing, ": foreignclusters /") || strings.Contains(thing, ": nft ") && strings.Contains(thing, "/gw-")
}

func (w *world) inventory(ctx context.Context) (inventory, error) {
	i := inventory{usage: map[string]usage{}, flows: map[string]int{}}
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		objects, err := objectsOf(ctx, c)
		if err != nil {
			return i, err
		}
		i.things = append(i.things, objects...)
		for _, n := range c.Nodes {
			things, err := thingsOn(n)
			if err != nil {
				return i, err
			}
			i.things = append(i.things, things...)
			if out, err := n.Host.Try("cat", "/proc/sys/net/netfilter/nf_conntrack_count"); err == nil {
				i.flows[n.Name], _ = strconv.Atoi(strings.TrimSpace(out))
			}
		}
		if err := i.addUsage(ctx, c); err != nil {
			return i, err
		}
	}
	slices.Sort(i.things)
	return i, nil
}

// fleeting are kinds of which objects come and go by themselves.
var fleeting = []string{"events", "leases", "endpointslices", "endpoints", "replicasets", "pods", "controllerrevisions", "componentstatuses"}

// objectsOf names all objects of a cluster, of whatever kind.
func objectsOf(ctx context.Context, c *kubelab.Cluster) (names []string, err error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(fleeting, r.Name) {
				continue
			}
			objects, err := m.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s of %s: %w", r.Name, c.Name, err)
			}
			for _, o := range objects.Items {
				names = append(names, fmt.Sprintf("%s: %s %s/%s", c.Name, r.Name, o.Namespace, o.Name))
			}
		}
	}
	return names, nil
}

// thingsOn names what a node has: links, routes, rules, tables and processes. Of
// what has another name each time it is there, only the number counts.
func thingsOn(n *kubelab.Node) (names []string, err error) {
	for _, ask := range []struct {
		what    string
		command string
		name    func(line string) string
	}{
		{"link", "ip -br link", func(line string) string {
			name, _, _ := strings.Cut(strings.Fields(line)[0], "@")
			return strings.TrimRight(name, "0123456789abcdef") // veth1a2b3c4d
		}},
		{"route", "ip route show table all", func(line string) string { return stable(line) }},
		{"rule", "ip rule", func(line string) string { return line }},
		// Of all tables: kube-proxy's hold the gateways' Services, too.
		{"nft", "nft --stateless list ruleset", func(line string) string { return line }},
		{"process", "ps -e -o comm=", func(line string) string { return strings.TrimSpace(line) }},
	} {
		out, err := n.Host.Try(strings.Fields(ask.command)...)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %s", n.Name, ask.command, err, out)
		}
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			if name := ask.name(line); line != "" && name != "ps" && name != "" {
				names = append(names, fmt.Sprintf("%s: %s %s", n.Name, ask.what, name))
			}
		}
	}
	return names, nil
}

// stable is a route without what differs each time: the end of names of links, and of the addresses that they give
// themselves.
func stable(route string) string {
	words := strings.Fields(route)
	for i, word := range words {
		for _, prefix := range []string{"veth", "fe80::"} {
			if strings.HasPrefix(word, prefix) {
				words[i] = prefix
			}
		}
	}
	return strings.Join(words, " ")
}

// noLinks checks that the agents have removed their links.
func noLinks(c *kubelab.Cluster) error {
	for _, n := range c.Nodes {
		if out, err := n.Host.Try("ip", "-br", "link"); err != nil || strings.Contains(out, "liqo.") {
			return fmt.Errorf("links of %s (%v):\n%s", n.Name, err, out)
		}
	}
	return nil
}

// addUsage adds the pods of controller and agents.
func (i *inventory) addUsage(ctx context.Context, c *kubelab.Cluster) error {
	for _, namespace := range []string{liqoNamespace, fabricNamespace} {
		pods, err := c.Pods(ctx, namespace, nil)
		if err != nil {
			return err
		}
		for _, p := range pods {
			_, rss, err := p.Usage()
			if err != nil {
				return err
			}
			pids, err := p.PIDs()
			if err != nil {
				return err
			}
			u := usage{rss: rss, descendants: len(pids)}
			for _, pid := range pids {
				files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
				if err != nil {
					return err
				}
				u.files += len(files)
			}
			i.usage[c.Name+"/"+p.Name] = u
		}
	}
	return nil
}

// compare waits until everything is as it was, and returns what there is then.
// What is used may have grown by a part, as caches do, and not by as much in each
// cycle.
func (i inventory) compare(t *testing.T, w *world) (now inventory) {
	t.Helper()
	lab.Eventually(t, patience, "everything is as it was", func() (err error) {
		if now, err = w.inventory(t.Context()); err != nil {
			return err
		}
		return difference(i.things, now.things)
	})
	for name, was := range i.usage {
		is, ok := now.usage[name]
		if !ok {
			t.Errorf("pod %s has been replaced", name)
			continue
		}
		t.Logf("%s: %d MiB resident, before %d; %d files open, before %d", name, is.rss>>20, was.rss>>20, is.files, was.files)
		if is.rss > 2*was.rss+64<<20 || is.files > was.files+16 || is.descendants != was.descendants {
			t.Errorf("%s has grown: %+v, before %+v", name, is, was)
		}
	}
	for name, is := range now.flows {
		t.Logf("%s: %d connections tracked, before %d", name, is, i.flows[name])
		// Each kubectl and each request leaves one behind for two minutes.
		if is > i.flows[name]+20000 {
			t.Errorf("%s tracks %d connections, before %d", name, is, i.flows[name])
		}
	}
	return now
}

// growth is a table of what there was and what there is.
func (i inventory) growth(now inventory) string {
	var b strings.Builder
	b.WriteString("| | before | after |\n|---|---|---|\n")
	kinds, last := i.kinds(), now.kinds()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", kind, kinds[kind], last[kind])
	}
	for _, pod := range slices.Sorted(maps.Keys(i.usage)) {
		was, is := i.usage[pod], now.usage[pod]
		fmt.Fprintf(&b, "| %s, resident | %d MiB | %d MiB |\n| its open files | %d | %d |\n", pod, was.rss>>20, is.rss>>20, was.files, is.files)
	}
	for _, node := range slices.Sorted(maps.Keys(i.flows)) {
		fmt.Fprintf(&b, "| flows that the kernel of %s tracks | %d | %d |\n", node, i.flows[node], now.flows[node])
	}
	return b.String()
}

// nodeThings are the things of nodes for people.
var nodeThings = map[string]string{
	"link": "links of all nodes", "route": "routes", "rule": "policy rules", "nft": "lines of nftables", "process": "processes",
}

// kinds counts the things that must not grow: objects of the API, and what nodes
// have.
func (i inventory) kinds() map[string]int {
	count := map[string]int{}
	for _, thing := range i.things {
		where, what, _ := strings.Cut(thing, ": ")
		kind, _, _ := strings.Cut(what, " ")
		if name, ok := nodeThings[kind]; ok {
			count[name]++
		} else {
			count["API objects of "+where]++
		}
	}
	return count
}

// difference says what is there now and was not, and the other way round. Both are
// sorted.
func difference(before, now []string) error {
	var text bytes.Buffer
	for b, n := before, now; len(b) > 0 || len(n) > 0; {
		switch {
		case len(n) == 0 || len(b) > 0 && b[0] < n[0]:
			fmt.Fprintln(&text, "-", b[0])
			b = b[1:]
		case len(b) == 0 || n[0] < b[0]:
			fmt.Fprintln(&text, "+", n[0])
			n = n[1:]
		default:
			b, n = b[1:], n[1:]
		}
	}
	if text.Len() > 0 {
		return errors.New(text.String())
	}
	return nil
}
