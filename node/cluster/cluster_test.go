package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const (
	// account is the service account of the DaemonSet, with its namespace.
	account = "liqo-fabric"
	node    = "worker"
	tenant  = "liqo-tenant-milan"
)

const objects = `
apiVersion: networking.liqo.io/v1beta1
kind: InternalNode
metadata: {name: worker}
spec: {interface: {gateway: {name: liqo.worker}, node: {ip: 10.80.0.9}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: InternalNode
metadata: {name: other}
spec: {interface: {gateway: {name: liqo.other}, node: {ip: 10.80.0.8}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: InternalFabric
metadata: {name: milan, namespace: liqo-tenant-milan}
spec:
  mtu: 1340
  gatewayIP: 10.0.0.11
  remoteCIDRs: [10.90.0.0/16, 10.91.0.0/16]
  interface: {node: {name: liqo.milan}, gateway: {ip: 10.80.0.1}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GeneveTunnel
metadata: {name: milan-worker, namespace: liqo-tenant-milan, labels: {networking.liqo.io/internal-node-name: worker}}
spec: {id: 7, internalFabricRef: {name: milan}, internalNodeRef: {name: worker}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GeneveTunnel
metadata: {name: milan-other, namespace: liqo-tenant-milan, labels: {networking.liqo.io/internal-node-name: other}}
spec: {id: 8, internalFabricRef: {name: milan}, internalNodeRef: {name: other}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  local: {cidr: {pod: 10.60.0.0/16, external: 10.70.0.0/16}}
  remote: {cidr: {pod: 10.61.0.0/16, external: 10.71.0.0/16}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {port: 51840, serviceType: NodePort}, serverTemplateRef: {name: t, kind: WgGatewayServerTemplate, apiVersion: networking.liqo.io/v1beta1}}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: printer, namespace: default}
spec: {ip: 192.168.1.5, masquerade: true}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: api-server, namespace: default}
spec: {ip: 10.96.0.1}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: service-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: service-cidr}}
spec: {cidr: 10.96.0.0/12}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: milan-pod, namespace: liqo-tenant-milan}
spec: {cidr: 10.61.0.0/16}
`

// start starts a control plane with the objects of a node.
func start(t *testing.T) *controlplanetest.Cluster {
	t.Helper()
	c := controlplanetest.Start(t)
	if err := c.CreateNamespace(tenant, nil); err != nil {
		t.Fatal(err)
	}
	c.Apply(objects)
	server := &networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	controlplanetest.EditStatus(t, c, server, func(s *networkingv1beta1.GatewayServer) {
		s.Status.InternalEndpoint = &networkingv1beta1.InternalEndpoint{IP: "10.0.0.11", Node: "other"}
	})
	return c
}

// podOf returns a configuration with the token that a pod of the DaemonSet has on
// a node: it says on which.
func podOf(t *testing.T, c *controlplanetest.Cluster, node string) *rest.Config {
	t.Helper()
	ctx := context.Background()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: account, Name: "fabric-" + node}, Spec: corev1.PodSpec{
		NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "fabric", Image: "fabric"}},
	}}
	for _, o := range []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, pod} {
		if err := c.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	token, err := c.Clientset.CoreV1().ServiceAccounts(account).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config)
	config.BearerToken = token.Status.Token
	return config
}

// running is a Link whose watches are followed.
type running struct {
	*Link
	changed chan struct{} // one slot
	stop    func()
}

func follow(t *testing.T, config *rest.Config) *running {
	t.Helper()
	l, err := New(config, Options{NodeName: node, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Link: l, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		l.Watch(ctx, func() {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		})
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		l.Close()
		l.Disconnect()
	})
	t.Cleanup(r.stop)
	return r
}

// TestLink reads and writes under the role that the installation gives a node
// agent.
func TestLink(t *testing.T) {
	c := start(t)
	config := podOf(t, c, node)
	l := follow(t, config)
	var reading manifests.Reading
	controlplanetest.Eventually(t, "all lists", func(context.Context) (err error) {
		reading, err = l.Read(manifests.Digest{})
		return err
	})
	for _, tt := range []struct {
		what string
		n    int
	}{
		{"InternalNodes", len(reading.Objects.InternalNodes)}, {"GeneveTunnels", len(reading.Objects.GeneveTunnels)},
		{"InternalFabrics", len(reading.Objects.InternalFabrics)}, {"Configurations", len(reading.Objects.Configurations)},
		{"GatewayServers", len(reading.Objects.GatewayServers)}, {"IPs", len(reading.Objects.IPs)}, {"Networks", len(reading.Objects.Networks)},
	} {
		if tt.n != 1 {
			t.Errorf("%d %s instead of one", tt.n, tt.what)
		}
	}
	if n := reading.Objects.InternalNodes[0].Object; n.Name != node {
		t.Errorf("InternalNode %s", n.Name)
	}
	local, server := reading.Objects.Configurations[0].Object, reading.Objects.GatewayServers[0].Object
	if len(local.Spec.Remote.CIDR.Pod.List) > 0 || local.Spec.Local == nil || server.Spec.Endpoint.Port != 0 || server.Status.InternalEndpoint.Node != "other" {
		t.Errorf("not trimmed, or too much: %+v, %+v", local, server)
	}
	t.Run("report", func(t *testing.T) { testReport(t, c, config, l, reading.Objects.InternalNodes[0].Object) })
	t.Run("without an API server", func(t *testing.T) { testAway(t, c, l) })
	l.stop() // it is another agent of the same node
	c.Apply(objects)
	t.Run("node", func(t *testing.T) { testNode(t, c, config) })
}

// report is what a node has to tell.
func report(n *networkingv1beta1.InternalNode, remote networkingv1beta1.Address) fabric.Report {
	return fabric.Report{
		Time: time.Now(), Node: n, NodeIP: networkingv1beta1.NodeIP{Remote: remote},
		Conditions: []metav1.Condition{{
			Type: string(networkingv1beta1.ConditionTunnelsReady), Status: metav1.ConditionTrue,
			Reason: string(networkingv1beta1.ReasonTunnelsReady), Message: "Tunnels in place: 1",
		}},
	}
}

func testReport(t *testing.T, c *controlplanetest.Cluster, config *rest.Config, l *running, n *networkingv1beta1.InternalNode) {
	status := func() networkingv1beta1.InternalNode {
		var n networkingv1beta1.InternalNode
		if err := c.Get(context.Background(), "", node, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	says := func(remote networkingv1beta1.Address) {
		t.Helper()
		controlplanetest.Eventually(t, "the status", func(context.Context) error {
			if got := status().Status; got.NodeIP.Remote != remote || len(got.Conditions) != 1 || got.Conditions[0].ObservedGeneration != 1 {
				return fmt.Errorf("is %+v; last error: %w", got, l.Report(report(n, remote)))
			}
			return nil
		})
	}
	for _, remote := range []networkingv1beta1.Address{"172.18.0.2", "172.18.0.3"} {
		if err := l.Report(report(n, remote)); err != nil {
			t.Error(err)
		}
		says(remote)
	}
	before := status().ResourceVersion
	for range 5 {
		if err := l.Report(report(n, "172.18.0.3")); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if after := status().ResourceVersion; after != before {
		t.Errorf("wrote what was written: version %s after %s", after, before)
	}
	// Whoever edits the status does not have the last word.
	edited := status()
	controlplanetest.EditStatus(t, c, &edited, func(n *networkingv1beta1.InternalNode) { n.Status = networkingv1beta1.InternalNodeStatus{} })
	says("172.18.0.3")

	// More than the status is not the agent's to write.
	own, err := client.New(config, client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"interface":{"node":{"ip":"10.80.0.7"}}}}`))
	if err := own.Patch(context.Background(), &edited, patch); !apierrors.IsForbidden(err) {
		t.Errorf("may change the spec: %v", err)
	}
	if err := own.List(context.Background(), new(corev1.SecretList)); !apierrors.IsForbidden(err) {
		t.Errorf("may read Secrets: %v", err)
	}
}

func testAway(t *testing.T, c *controlplanetest.Cluster, l *running) {
	before, err := l.Read(manifests.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	c.StopAPIServer()
	controlplanetest.Eventually(t, "it is noticed", func(context.Context) error {
		if l.State().Connected {
			return errors.New("still connected")
		}
		return nil
	})
	if r, err := l.Read(before.Digest); err != nil || r.Digest != before.Digest {
		t.Errorf("while it is away: %v", err)
	}
	if err := c.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Delete(context.Background(), &networkingv1beta1.GeneveTunnel{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-worker"}}); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the tunnel goes", func(context.Context) error {
		r, err := l.Read(manifests.Digest{})
		if err != nil || len(r.Objects.GeneveTunnels) > 0 {
			return fmt.Errorf("%d tunnels, %w", len(r.Objects.GeneveTunnels), err)
		}
		return nil
	})
}

// Until every list is there nothing is built: what is missing would look deleted.
func TestReadWaits(t *testing.T) {
	l, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{NodeName: node})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []interface{ Replace([]any, string) error }{
		l.nodes, l.tunnels, l.fabrics, l.configs, l.servers, l.gwClients, l.ips, l.networks,
	} {
		var waiting manifests.Waiting
		if _, err := l.Read(manifests.Digest{}); !errors.As(err, &waiting) {
			t.Fatalf("without all lists: %v", err)
		}
		if err := s.Replace(nil, "1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Read(manifests.Digest{}); err == nil || err.Error() != "asking the API server where it is" {
		t.Errorf("without its address: %v", err)
	}
	l.addresses.add(nil)
	if r, err := l.Read(manifests.Digest{}); err != nil || !r.Heavy {
		t.Errorf("%+v, %v", r, err)
	}
	// The InternalNode is gone: that is said, and no reason to hurry.
	if _, err := l.patch(context.Background(), report(new(networkingv1beta1.InternalNode), "172.18.0.2")); !errors.Is(err, errNoNode) {
		t.Error(err)
	}
}

func TestSelection(t *testing.T) {
	long := strings.Repeat("n", 64) + ".example.org"
	got := []string{tunnelLabels("worker-1.example.org"), tunnelLabels(long)}
	if diff := cmp.Diff([]string{"networking.liqo.io/internal-node-name=worker-1.example.org", ""}, got); diff != "" {
		t.Errorf("selectors (-want +got):\n%s", diff)
	}
	l, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{NodeName: node})
	if err != nil {
		t.Fatal(err)
	}
	other := new(networkingv1beta1.GeneveTunnel)
	other.Spec.InternalNodeRef.Name = "other"
	if l.tunnels.Keep(other) || l.ips.Keep(new(ipamv1alpha1.IP)) {
		t.Error("keeps what is not ours")
	}
}
