package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// peering is one peering of the pair: where its objects are on both sides.
type peering struct {
	provider, consumer end
}

// end is one side of a peering.
type end struct {
	*side
	namespace string
	peerID    string // of the other side, as this one calls it
	gateway   string // name of the GatewayServer or GatewayClient
}

func (p *peering) ends() []*end { return []*end{&p.provider, &p.consumer} }

// connected reads the Connection of one end.
func (e *end) connected(ctx context.Context) error {
	c := new(networkingv1beta1.Connection)
	if err := e.Get(ctx, e.namespace, "gw-"+e.gateway, c); err != nil {
		return err
	}
	if c.Status.Value != networkingv1beta1.Connected {
		return fmt.Errorf("connection of %s is %q", e.id, c.Status.Value)
	}
	return nil
}

// remapped is what stands at this end for the pod CIDR of the other.
func (e *end) remapped(ctx context.Context) (netip.Prefix, error) {
	var list networkingv1beta1.ConfigurationList
	err := e.Client.List(ctx, &list, client.InNamespace(e.namespace), client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: e.peerID})
	if err != nil {
		return netip.Prefix{}, err
	}
	if len(list.Items) != 1 || list.Items[0].Status.Remote == nil || len(list.Items[0].Status.Remote.CIDR.Pod.List) != 1 {
		return netip.Prefix{}, fmt.Errorf("%s has no status of a Configuration for %s", e.id, e.peerID)
	}
	return list.Items[0].Status.Remote.CIDR.Pod.List[0].Prefix()
}

// here is how this end addresses a pod of the other.
func (e *end) here(ctx context.Context, p *pod) (netip.Addr, error) {
	prefix, err := e.remapped(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	return dataplanetest.Through(prefix, p.addr), nil
}

// traffic fetches a page from every pod of each side in every pod of the other.
func (p *peering) traffic(ctx context.Context) error {
	for _, ends := range [][2]*end{{&p.consumer, &p.provider}, {&p.provider, &p.consumer}} {
		for _, from := range ends[0].pods {
			for _, to := range ends[1].pods {
				at, err1 := ends[0].here(ctx, to)
				as, err2 := ends[1].here(ctx, from)
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				if err := from.reach(ctx, to, at, as); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// established waits until both ends are Connected, then until pods reach each
// other, and logs how long both took from start.
func (p *peering) established(t *testing.T, start time.Time) {
	t.Helper()
	for _, e := range p.ends() {
		controlplanetest.Eventually(t, e.id+" is Connected", e.connected)
	}
	connected := time.Since(start)
	controlplanetest.Eventually(t, "pods reach each other", p.traffic)
	t.Logf("Connected on both sides after %v, HTTP in both directions after %v",
		connected.Round(10*time.Millisecond), time.Since(start).Round(10*time.Millisecond))
}
