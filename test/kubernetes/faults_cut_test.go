package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// followed is how long nodes, node ports and peer may take to follow a gateway that leads.
const followed = 10 * time.Second

// settled is how long the traffic is watched while a gateway is cut off and another one
// leads, and after the cut: long enough for whatever two of them repeat.
const settled = 25 * time.Second

// cut is a way of cutting a node off.
type cut struct {
	name string
	cut  func(*kubelab.Node)
	// seen tells whether what the gateway sends still comes to a peer that knows it: one that
	// has made more than one session with the successor has forgotten the former one's. A client
	// makes one at once, a server as it is found.
	seen bool
	// mend are the steps by which all is well again.
	mend []func(*kubelab.Node)
}

var cuts = []cut{
	{"node cut off", (*kubelab.Node).Cut, false, []func(*kubelab.Node){(*kubelab.Node).Mend}},
	{"API server cut off", (*kubelab.Node).CutFromAPIServer, true, []func(*kubelab.Node){(*kubelab.Node).Mend}},
	{"node and API server cut off", (*kubelab.Node).Cut, false, []func(*kubelab.Node){(*kubelab.Node).CutFromAPIServer, (*kubelab.Node).Mend}},
}

// testGatewayCutOff cuts the node of the gateway that leads off, while its processes go
// on, until another one leads, and mends that again. That one does not lose the session to
// the former one, neither while the cut lasts nor when it ends.
func testGatewayCutOff(t *testing.T, f *faults) {
	f.replicas(t, 2)
	defer f.replicas(t, 1)
	for _, k := range cuts {
		f.onEachSide(func(side string, c *kubelab.Cluster) { f.cutOff(t, side, c, k) })
	}
}

func (f *faults) cutOff(t *testing.T, side string, c *kubelab.Cluster, k cut) {
	t.Helper()
	node := c.Nodes[0]
	node.LeadPorts() // until it is cut off
	f.placeGateway(t, c, node)
	f.placeController(t, c, node)
	former := leads(t, c)
	fault := fmt.Sprintf("%s of the gateway %s", k.name, side)
	paths := f.pathsBetween(t, elsewhere(f.clients, node), elsewhere(f.servers, node))
	t.Cleanup(node.Mend)
	f.measure(t, fault+", until another one leads", promise{}, paths, func() {
		start := time.Now()
		k.cut(node)
		lab.Eventually(t, patience, "a gateway on another node leads", func() error {
			p, err := leaseHolder(t.Context(), c)
			if err == nil && p.Node == node {
				err = fmt.Errorf("%s has the Lease", p.Name)
			}
			return err
		})
		t.Logf("%s: another one leads after %v", fault, round(time.Since(start)))
		lasts(t.Context(), followed)
	})
	f.watch(t, fault+", another one leads", promise{within: blink}, paths, func() {
		lasts(t.Context(), settled)
		f.twoAreSeen(t, c, former, k.seen && c == f.a)
	})
	for i, mend := range k.mend {
		what := ", and back"
		if i+1 < len(k.mend) {
			what = ", node back"
		}
		f.watch(t, fault+what, promise{within: blink}, paths, func() {
			mend(node)
			lasts(t.Context(), settled)
		})
	}
	f.quiet(t)
}

// twoAreSeen checks that there are known to be two gateways in c: by the one that was cut
// off, and by its peer, if that sees it.
func (f *faults) twoAreSeen(t *testing.T, c *kubelab.Cluster, former *kubelab.Pod, seen bool) {
	t.Helper()
	lab.Eventually(t, patience, "the gateway that was cut off says so", func() error {
		out, err := former.TryContext(t.Context(), "curl", "-sf", "http://127.0.0.1:8082/metrics") // only its own node reaches it
		if err == nil && !strings.Contains(out, "\nsluice_lead_unconfirmed 1\n") {
			err = errors.New("sluice_lead_unconfirmed is not 1")
		}
		return err
	})
	if !seen {
		return
	}
	peer := f.b
	lab.Eventually(t, patience, "the Connection of "+peer.Name+" says that there are two gateways in "+c.Name, func() error {
		var list networkingv1beta1.ConnectionList
		if err := peer.Client().List(t.Context(), &list, ofPeer(c.Name)); err != nil {
			return err
		}
		for _, conn := range list.Items {
			if meta.IsStatusConditionFalse(conn.Status.Conditions, string(networkingv1beta1.ConditionPeerUnique)) {
				return nil
			}
		}
		return errors.New("it does not")
	})
}
