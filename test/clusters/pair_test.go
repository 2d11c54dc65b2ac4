package clusters

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// Both clusters use these.
const (
	podCIDR      = "10.243.0.0/16"
	serviceCIDR  = "10.96.0.0/16"
	externalCIDR = "10.70.0.0/16"
)

// pair is two clusters: the provider has the gateway servers and the consumer
// the clients.
type pair struct {
	provider, consumer *side
	liqoctl            program
	probers            *probers
}

// side is one cluster with its nodes and its controller.
type side struct {
	*controlplanetest.Cluster
	id      string
	kubelet *controlplanetest.Kubelet
	fabric  *fabric
	pods    []*pod // one on each node but that of the controller
	probers *probers
}

func (p *pair) sides() []*side { return []*side{p.provider, p.consumer} }

// startPair starts two clusters, in each the controller as a pod.
func startPair(t *testing.T) *pair {
	t.Helper()
	images, liqoctl := programs(t)
	p := &pair{provider: new(side), consumer: new(side), liqoctl: liqoctl, probers: newProbers()}
	images[proberImage] = p.probers.image()
	for _, s := range p.sides() {
		s.Cluster, s.probers = controlplanetest.Start(t), p.probers
	}
	p.provider.id, p.consumer.id = "provider", "consumer"
	for _, s := range p.sides() {
		s.kubelet = controlplanetest.StartKubelet(t, s.Cluster, controlplanetest.KubeletOptions{Images: images, ControlPlane: true})
		controlplanetest.StartKubeProxy(t, s.kubelet)
		s.fabric = startFabric(t, s.Cluster, s.kubelet)
		s.startController(t)
		if err := s.CreateNamespace(podNamespace, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			s.pods = append(s.pods, s.startPod(t, fmt.Sprintf("pod-%d", 1+i), i))
		}
	}
	return p
}

// each does something to both sides at the same time.
func (p *pair) each(f func(*side) error) error {
	var wg sync.WaitGroup
	var errs [2]error
	for i, s := range p.sides() {
		wg.Go(func() { errs[i] = f(s) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}
