package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/controlplanetest"
)

// kills is how often each controller is killed.
const kills = 50

// testChurn kills both controllers again and again while a user creates,
// changes and deletes objects, his own and theirs. Then he wants what was there
// in an undisturbed run: exactly that must be there, and nothing must be left
// when he deletes it.
func testChurn(t *testing.T, p *pair) {
	d := readDocument(t, declarativeDocument)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var all []*churned
	for i := range 2 {
		pe := newPeering(t, p, fmt.Sprintf("churn-%d", i))
		namespaces, objects := declarative(t, d, pe, wgNodePort+i)
		all = append(all, &churned{pe, namespaces, objects})
	}
	empty := p.snapshot(t)

	for _, c := range all {
		c.want(t)
	}
	undisturbed := p.snapshot(t)
	for _, c := range all {
		c.remove(t)
	}
	p.sameAs(t, "after an undisturbed run", empty)

	stop := p.killControllers(t, r)
	changes := 0
	for ; !stop(); changes++ {
		c := all[r.IntN(len(all))]
		if changes < 40 {
			c.applySome(r)
		} else {
			c.change(r)
		}
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond) // a user is not that fast
	}
	t.Logf("%d changes while both controllers were killed %d times", changes, kills)
	for _, c := range all {
		c.want(t)
	}
	p.sameAs(t, "with a controller that was killed", undisturbed)
	p.distinct(t)

	stop = p.killControllers(t, r)
	for _, c := range all {
		c.remove(t)
	}
	for !stop() {
		time.Sleep(50 * time.Millisecond)
	}
	p.sameAs(t, "deleted while the controller was killed", empty)
}

// churned is a peering with what its users want.
type churned struct {
	*peering
	namespaces, objects []object
}

// want applies what the users want and waits until they have it.
func (c *churned) want(t *testing.T) {
	t.Helper()
	start := time.Now()
	for _, o := range slices.Concat(c.namespaces, c.objects) {
		controlplanetest.Eventually(t, "the API server takes it", func(context.Context) error { return o.apply() })
	}
	c.established(t, start)
}

func (c *churned) applySome(r *rand.Rand) {
	for _, o := range c.namespaces {
		_ = o.apply() // the end is what counts
	}
	_ = c.objects[r.IntN(len(c.objects))].apply()
}

// change does something at random.
func (c *churned) change(r *rand.Rand) {
	e := c.ends()[r.IntN(2)]
	o := c.objects[r.IntN(len(c.objects))]
	children := strings.Split("deployment,service,serviceaccount,role,rolebinding,lease,connection,internalfabric,genevetunnel,"+
		"networks.ipam.liqo.io,wggatewayserver,wggatewayclient,pod", ",")
	var err error
	switch r.IntN(6) {
	case 0, 1:
		err = o.apply()
	case 2:
		args := []string{"delete", "-f", "-", "--wait=false", "--ignore-not-found"}
		if o.namespace != "" {
			args = append(args, "-n", o.namespace)
		}
		_, err = o.on.KubectlInput(o.manifest, args...)
	case 3:
		_, err = e.Kubectl("delete", children[r.IntN(len(children))], "--all", "-n", e.namespace, "--wait=false")
	case 4:
		_, err = e.Kubectl("patch", "gatewayservers,gatewayclients", e.gateway, "-n", e.namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"mtu":%d}}`, 1300+r.IntN(40)))
	case 5:
		_, err = e.Kubectl("delete", []string{"internalnodes", "routeconfigurations"}[r.IntN(2)], "--all", "-n", controlplanetest.LiqoNamespace, "--wait=false")
	}
	_ = err // what is not there cannot be deleted
}

// killControllers kills the controllers of both sides until each was killed
// often enough. done tells when; it is to be called until it does.
func (p *pair) killControllers(t *testing.T, r *rand.Rand) (done func() bool) {
	t.Helper()
	var wg sync.WaitGroup
	for _, s := range p.sides() {
		name, err := s.controllerPod(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		wg.Go(func() {
			for range kills {
				for len(s.kubelet.PIDs(controlplanetest.LiqoNamespace, name)) == 0 && t.Context().Err() == nil {
					time.Sleep(20 * time.Millisecond)
				}
				// It needs some 500 ms to start, so that it is killed in the middle of that as well.
				time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				_ = s.kubelet.Kill(controlplanetest.LiqoNamespace, name) // it lives, or ended by itself
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	t.Cleanup(func() { <-over })
	return func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
}

// counted are the kinds whose objects are compared.
const counted = leftovers + ",clusterrolebindings,internalnodes,namespaces,configmaps"

// snapshot is what is there: of each side a line for each object, with what it
// is called, its labels and its owners.
func (p *pair) snapshot(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, s := range p.sides() {
		out, err := s.Kubectl("get", counted, "-A", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []snapshotItem }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		for _, i := range list.Items {
			all[s.id] = append(all[s.id], i.String())
		}
		slices.Sort(all[s.id])
	}
	return all
}

type snapshotItem struct {
	Kind     string
	Metadata struct {
		Name, Namespace, GenerateName string
		Labels                        map[string]string
		OwnerReferences               []struct{ Kind, Name string }
	}
}

// String leaves out what is random.
func (i snapshotItem) String() string {
	m := &i.Metadata
	hash := m.Labels["pod-template-hash"]
	delete(m.Labels, "pod-template-hash")
	steady := func(name string) string {
		if hash == "" {
			return name
		}
		return strings.ReplaceAll(name, hash, "*")
	}
	name := m.Name
	if m.GenerateName != "" {
		name = m.GenerateName + "*"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s/%s", i.Kind, m.Namespace, steady(name))
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		fmt.Fprintf(&text, " %s=%s", k, m.Labels[k])
	}
	for _, o := range m.OwnerReferences {
		fmt.Fprintf(&text, " of %s %s", o.Kind, steady(o.Name))
	}
	return text.String()
}

// sameAs waits until what is there is what was there.
func (p *pair) sameAs(t *testing.T, when string, want map[string][]string) {
	t.Helper()
	controlplanetest.Eventually(t, "the same objects "+when, func(context.Context) error {
		if diff := cmp.Diff(want, p.snapshot(t)); diff != "" {
			return fmt.Errorf("(-want +got)\n%s", diff)
		}
		return nil
	})
}

// distinct checks that nothing that must be unique was handed out twice.
func (p *pair) distinct(t *testing.T) {
	t.Helper()
	for _, s := range p.sides() {
		var tunnels networkingv1beta1.GeneveTunnelList
		var nodes networkingv1beta1.InternalNodeList
		var fabrics networkingv1beta1.InternalFabricList
		for _, list := range []struct {
			kind string
			err  error
		}{{"tunnels", s.Client.List(t.Context(), &tunnels)}, {"nodes", s.Client.List(t.Context(), &nodes)}, {"fabrics", s.Client.List(t.Context(), &fabrics)}} {
			if list.err != nil {
				t.Fatalf("list %s: %v", list.kind, list.err)
			}
		}
		owner := make(map[string]string)
		take := func(what, by string) {
			if other := owner[what]; other != "" {
				t.Errorf("%s: %s belongs to %s and to %s", s.id, what, other, by)
			}
			owner[what] = by
		}
		for _, o := range tunnels.Items {
			take(fmt.Sprintf("VNI %d", o.Spec.ID), o.Namespace+"/"+o.Name)
		}
		for _, o := range nodes.Items {
			take(string(o.Spec.Interface.Node.IP), "node "+o.Name)
		}
		for _, o := range fabrics.Items {
			take(string(o.Spec.Interface.Gateway.IP), "gateway "+o.Namespace+"/"+o.Name)
		}
	}
}
