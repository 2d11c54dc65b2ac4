package scale

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/lab"
	wireguard "github.com/sluice-net/sluice/tunnel"
)

// shop is the namespace of all exported Services.
const shop = "shop"

// TestServices measures two clusters, of which one uses what the other exports: the controllers of Services on control
// planes of their own, and gateways whose tunnel is on loopback.
func TestServices(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	newSharing(t, *exports, *endpoints).measure(*readiness, *seconds)
}

// TestFewServices is the same with few, and judges what does not depend on the machine.
func TestFewServices(t *testing.T) {
	s := newSharing(t, 4, 3)
	sent, imported, again := s.measure(4, 2)
	// What is below, as a cluster imports what it exports, too; the ExportedService, and three times the status of the
	// ServiceExport.
	if most := 12 * s.services; sent.writes() > most {
		t.Errorf("%d writes to export %d Services, want at most %d: %v", sent.writes(), s.services, most, sent.Writes)
	}
	// ServiceImport, with its address another time, its status with and without one, Service, EndpointSlice, the status of
	// the ImportedService.
	if most := 8 * s.services; imported.writes() > most {
		t.Errorf("%d writes to import %d Services, want at most %d: %v", imported.writes(), s.services, most, imported.Writes)
	}
	if again != 0 {
		t.Errorf("the second start writes %d times", again)
	}
}

// sharing is a peering: milan uses the Services of rome.
type sharing struct {
	t                   *testing.T
	rome, milan         *end
	services, endpoints int
}

// end is one cluster of it.
type end struct {
	*world
	id, peer, mode string
	host           string // address of the gateway
	gateway        *exec.Cmd
	socket         string
}

func newSharing(t *testing.T, services, endpoints int) *sharing {
	s := &sharing{t: t, services: services, endpoints: endpoints}
	keys := [2]wireguard.PrivateKey{wireguard.GeneratePrivateKey(), wireguard.GeneratePrivateKey()}
	// Of this process alone.
	host := func(i int) string { return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()>>8%64, os.Getpid()%256, 1+i) }
	s.rome = newEnd(t, &end{id: "rome", peer: "milan", mode: "server", host: host(0)}, host(0), keys[0], keys[1].Public())
	s.milan = newEnd(t, &end{id: "milan", peer: "rome", mode: "client", host: host(1)}, host(0), keys[1], keys[0].Public())
	s.rome.serve(services, endpoints)
	s.milan.must(s.milan.Client.Create(s.milan.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	return s
}

// newEnd makes a cluster that is connected to its peer as soon as both gateways run.
func newEnd(t *testing.T, e *end, server string, key wireguard.PrivateKey, peer wireguard.PublicKey) *end {
	e.world = newWorld(t)
	e.must(e.Install(deploy.MultiCluster()))
	e.ApplyManifest(t, "services", "services.yaml")
	e.must(e.CreateNamespace(e.tenant(), peering(e.peer, networkingv1beta1.LabelTenantNamespace, "true")))
	e.CreateText(t, controlplanetest.PeeringEnd{
		Namespace: e.tenant(), Peer: e.peer, Mode: e.mode, Host: e.host, Server: server, PeerKey: peer,
	}.Fill(controlplanetest.GatewayObjects+controlplanetest.GatewayConnection))
	f := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: e.peer}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: corev1beta1.ClusterID(e.peer)}}
	for _, o := range []client.Object{
		f,
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": e.id},
		},
		&ipamv1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "pod-cidr", Labels: map[string]string{
				ipamv1alpha1.LabelNetworkType: ipamv1alpha1.NetworkTypePodCIDR,
			}},
			Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.243.0.0/16"},
		},
	} {
		e.must(e.Client.Create(e.ctx, o))
	}
	e.status(f, corev1beta1.ForeignClusterStatus{
		Role: corev1beta1.UnknownRole,
		Modules: corev1beta1.Modules{Networking: corev1beta1.Module{Conditions: []corev1beta1.Condition{{
			Type: corev1beta1.ConditionNetworkConnection, Status: corev1beta1.StatusEstablished, LastTransitionTime: metav1.Now(),
		}}}},
	})
	public := key.Public()
	e.must(errors.Join(
		os.WriteFile(filepath.Join(e.Dir, "privateKey"), key[:], 0o600),
		os.WriteFile(filepath.Join(e.Dir, "publicKey"), public[:], 0o600),
	))
	return e
}

func (e *end) tenant() string { return "liqo-tenant-" + e.peer }

// startGateway starts the gateway as a process, which ends with the test or by stopGateway.
func (e *end) startGateway() {
	e.t.Helper()
	e.socket = filepath.Join(os.TempDir(), fmt.Sprintf("sluice-scale-%d-%s.sock", os.Getpid(), e.id)) // short enough for a socket
	e.gateway = exec.Command(lab.Build(e.t, lab.GatewayPackage, "-trimpath", "-ldflags=-s -w"),
		"--name=gw", "--namespace="+e.tenant(), "--remote-cluster-id="+e.peer, "--mode="+e.mode, "--kubeconfig="+e.Kubeconfig, "--keys-dir="+e.Dir,
		"--bind-address="+e.host, "--pod-name=gw", "--node-name=worker", "--metrics-address="+e.host+":8082", "--health-probe-address="+e.host+":8083",
		"--admin-socket="+e.socket, "--services")
	log, err := os.Create(filepath.Join(e.Dir, "gateway.log"))
	e.must(err)
	defer log.Close() // the process has its own
	e.gateway.Stderr = log
	e.must(e.gateway.Start())
	e.t.Cleanup(e.stopGateway)
}

func (e *end) stopGateway() {
	if e.gateway == nil {
		return
	}
	_ = e.gateway.Process.Kill() // gone already is as good
	_ = e.gateway.Wait()
	os.Remove(e.socket)
	if e.gateway = nil; e.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(e.Dir, "gateway.log")) // for a message only
		e.t.Logf("gateway of %s:\n%s", e.id, log[max(0, len(log)-3000):])
	}
}

// hears tells whether the gateway knows all of so many Services of the peer.
func (e *end) hears(services int) error {
	out, err := exec.Command(e.gateway.Path, "status", "--admin-socket", e.socket, "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("gateway status: %w", err)
	}
	var r struct {
		Services struct {
			Heard    bool              `json:"heard"`
			Imported []json.RawMessage `json:"imported"`
		} `json:"services"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	if !r.Services.Heard || len(r.Services.Imported) != services {
		return fmt.Errorf("%d Services, all told: %v", len(r.Services.Imported), r.Services.Heard)
	}
	return nil
}

// serve makes Services and their endpoints, as users and a cluster do.
func (e *end) serve(services, endpoints int) {
	e.must(e.Client.Create(e.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	e.many("Services", services, func(i int) error {
		name := serviceName(i)
		_, err := e.core.CoreV1().Services(shop).Create(e.ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
		}
		for n := range endpoints {
			at := i*endpoints + n
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.243.%d.%d", at/250, 1+at%250)},
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				NodeName:   new(nodeName(n)), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: shop, Name: fmt.Sprintf("%s-%d", name, n)},
			})
		}
		_, err = e.core.DiscoveryV1().EndpointSlices(shop).Create(e.ctx, slice, metav1.CreateOptions{})
		return err
	})
}

func serviceName(i int) string { return fmt.Sprintf("web-%04d", i) }

// endpointArrivals follow the EndpointSlices of imported Services.
type endpointArrivals struct {
	mu      sync.Mutex
	count   map[string]int  // endpoints by Service
	first   map[string]bool // whether the first one is ready
	pending map[string]change
	lags    []time.Duration
}

func (e *end) watchArrivals() *endpointArrivals {
	a := &endpointArrivals{count: map[string]int{}, first: map[string]bool{}, pending: map[string]change{}}
	e.follow(new(discoveryv1.EndpointSliceList), func(o client.Object) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			a.note(s)
		}
	}, client.InNamespace(shop), client.HasLabels{mcsv1beta1.LabelServiceName})
	return a
}

func (a *endpointArrivals) note(s *discoveryv1.EndpointSlice) {
	name, now := s.Labels[mcsv1beta1.LabelServiceName], time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[name] = len(s.Endpoints)
	if len(s.Endpoints) == 0 {
		return
	}
	a.first[name] = *s.Endpoints[0].Conditions.Ready
	if c, waits := a.pending[name]; waits && a.first[name] == c.present {
		a.lags = append(a.lags, now.Sub(c.since))
		delete(a.pending, name)
	}
}

// expect notes a change that an API server has just accepted.
func (a *endpointArrivals) expect(name string, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first[name] != ready {
		a.pending[name] = change{ready, time.Now()}
		return
	}
	if _, undone := a.pending[name]; undone {
		delete(a.pending, name) // it came and went between two writes
		return
	}
	a.lags = append(a.lags, 0) // the other cluster was faster than the acknowledgement
}

func (a *endpointArrivals) all(services, endpoints int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.count {
		n += c
	}
	if len(a.count) != services || n != services*endpoints {
		return fmt.Errorf("%d Services with %d endpoints", len(a.count), n)
	}
	return nil
}

func (a *endpointArrivals) waiting() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.pending); n > 0 {
		return fmt.Errorf("%d wait", n)
	}
	return nil
}

// churn makes the first endpoints of one Service after the other not ready, and ready again.
func (s *sharing) churn(a *endpointArrivals, rate, seconds int) time.Duration {
	start := time.Now()
	s.rome.many("changes", rate*seconds, func(i int) error {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		name, ready := serviceName(i%s.services), i/s.services%2 == 1
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/endpoints/0/conditions/ready","value":%t}]`, ready)
		if _, err := s.rome.core.DiscoveryV1().EndpointSlices(shop).Patch(s.rome.ctx, name+"-1", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		a.expect(name, ready)
		return nil
	})
	return time.Since(start)
}

// gatewayWrites is how many ImportedServices the gateway of the importing cluster has written.
func (s *sharing) gatewayWrites() int {
	return s.milan.written("networking.liqo.io", "importedservices")
}

// measure exports all Services, changes endpoints, and starts everything a second time. Sent are the figures of the
// controllers that export, imported those of the others, again the writes of all after the second start.
func (s *sharing) measure(rate, seconds int) (sent, imported figures, again int) {
	t := s.t
	ends := []*end{s.rome, s.milan}
	both := func(do func(*end)) {
		for _, e := range ends {
			do(e)
		}
	}
	controllers := map[*end]*process{}
	both(func(e *end) {
		controllers[e] = startControllers(t, e.Cluster, servicesOnly)
		e.startGateway()
	})
	until(t, "the gateways hear each other", func() error { return errors.Join(s.rome.hears(0), s.milan.hears(0)) })
	a, written := s.milan.watchArrivals(), s.gatewayWrites()
	resident := map[*end][2]float64{}
	look := func() {
		both(func(e *end) {
			resident[e] = [2]float64{memoryOf(t, e.gateway.Process.Pid, "VmRSS"), memoryOf(t, e.gateway.Process.Pid, "VmHWM")}
		})
	}

	start := time.Now()
	s.rome.many("ServiceExports", s.services, func(i int) error {
		return s.rome.Client.Create(s.rome.ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: serviceName(i)}})
	})
	until(t, "all is imported", func() error { return a.all(s.services, s.endpoints) })
	converged := time.Since(start)
	quiet := func(figures) bool { return true }
	sent, imported = controllers[s.rome].rest(t, quiet, collect), controllers[s.milan].rest(t, quiet, cmp.Or(*profile, collect))
	look()
	byGateway := s.gatewayWrites() - written
	out := newReport("services-scale", controlPlane+" of both clusters, and both gateways",
		fmt.Sprintf("%d exported Services with %d endpoints each; then %d changes of readiness each second for %d s", s.services, s.endpoints, rate, seconds))
	each := func(n int) float64 { return float64(n) / float64(s.services) }
	out.row("exports made to all imported", "%.1f s", converged.Seconds())
	out.row("  CPU time of the controllers, there and here", "%.1f, %.1f s", sent.CPU.Seconds(), imported.CPU.Seconds())
	out.row("  writes for each Service, there", "%.2f", each(sent.writes()))
	out.requests("", sent.Writes)
	out.row("  writes of the gateway for each Service", "%.2f", each(byGateway))
	out.row("  writes for each Service, here", "%.2f", each(imported.writes()))
	out.requests("", imported.Writes)
	out.row("  heap of the controllers, there and here", "%.0f, %.0f MiB", sent.HeapMiB, imported.HeapMiB)
	out.row("  resident, and its peak, there", "%.0f, %.0f MiB", sent.RSSMiB, sent.PeakMiB)
	out.row("  resident, and its peak, here", "%.0f, %.0f MiB", imported.RSSMiB, imported.PeakMiB)
	out.row("  gateway, resident, and its peak, there", "%.0f, %.0f MiB", resident[s.rome][0], resident[s.rome][1])
	out.row("  gateway, resident, and its peak, here", "%.0f, %.0f MiB", resident[s.milan][0], resident[s.milan][1])

	written = s.gatewayWrites()
	took := s.churn(a, rate, seconds)
	followed := until(t, "all changes are followed", a.waiting)
	there, here := controllers[s.rome].rest(t, quiet, quick).since(sent), controllers[s.milan].rest(t, quiet, quick).since(imported)
	look()
	changes := float64(rate * seconds)
	out.row("changes", "%.0f", changes)
	out.row("  each second, as the API server allowed", "%.0f", changes/took.Seconds())
	out.row("  changed to imported, p50", "%v", quantile(a.lags, 0.5))
	out.row("  changed to imported, p99", "%v", quantile(a.lags, 0.99))
	out.row("  changed to imported, worst", "%v", quantile(a.lags, 1))
	out.row("  last change to last imported", "%v", followed.Round(time.Millisecond))
	out.row("  writes there, of the gateway, here", "%.2f, %.2f, %.2f for each change", float64(there.writes())/changes, float64(s.gatewayWrites()-written)/changes, float64(here.writes())/changes)
	out.row("  CPU time of the controllers, there and here", "%.1f, %.1f s", there.CPU.Seconds(), here.CPU.Seconds())
	out.row("  gateways, resident, there and here", "%.0f, %.0f MiB", resident[s.rome][0], resident[s.milan][0])

	both(func(e *end) {
		controllers[e].stop()
		e.stopGateway()
	})
	written, start = s.gatewayWrites(), time.Now()
	both(func(e *end) {
		controllers[e] = startControllers(t, e.Cluster, servicesOnly)
		e.startGateway()
	})
	until(t, "all is heard again", func() error { return s.milan.hears(s.services) })
	there = controllers[s.rome].rest(t, func(f figures) bool { return f.Reconciled["serviceexport"] >= s.services }, quick)
	here = controllers[s.milan].rest(t, func(f figures) bool { return f.Reconciled["serviceimport"] >= s.services }, quick)
	restarted := time.Since(start) - 2*restFor
	byGateway = s.gatewayWrites() - written
	again = there.writes() + here.writes() + byGateway
	out.row("second start until all is looked at", "%.1f s", restarted.Seconds())
	out.row("  writes there, of the gateway, here", "%d, %d, %d", there.writes(), byGateway, here.writes())
	out.done(t)
	return sent, imported, again
}
