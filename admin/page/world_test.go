package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/golden"
)

// peerOf is a healthy peering with a cluster, as the other one's end shows it.
func peerOf(self, id string, number int, at time.Time, tick int) survey.Peer {
	namespace := "liqo-tenant-" + id
	well := []metav1.Condition{{Type: "Any", Status: metav1.ConditionTrue, Reason: "Well"}}
	n := uint64(tick)
	return survey.Peer{
		ID: id, Namespace: namespace,
		Configuration: &networkingv1beta1.Configuration{
			ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: namespace},
			Spec:       networkingv1beta1.ConfigurationSpec{Remote: cidrs("10.243.0.0/16", "10.70.0.0/16")},
			Status: networkingv1beta1.ConfigurationStatus{
				Remote: new(cidrs(fmt.Sprintf("10.%d.0.0/16", 71+number), fmt.Sprintf("10.%d.0.0/16", 130+number))), Conditions: well,
			},
		},
		Gateway: &survey.Gateway{
			Kind: "GatewayClient", Namespace: namespace, Name: id, Role: networkingv1beta1.ConnectionClient, Created: at.Add(-time.Hour), MTU: 1340, Conditions: well,
			Endpoint: &networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.7"}, Port: 51840},
			Keys:     &survey.Keys{Public: keyText(self), Since: at.Add(-time.Hour)},
			Pods:     []survey.Pod{{Namespace: namespace, Name: "gw-" + id + "-0", Node: self + "-1", Ready: true, Active: true, Created: at.Add(-time.Hour)}},
			Report: &survey.GatewayReport{
				Time: at, Started: time.Unix(1, 0), Memory: survey.Memory{Resident: 24<<20 + n<<14},
				Cluster: &survey.GatewayCluster{API: struct {
					Connected bool   `json:"connected"`
					Error     string `json:"error,omitempty"`
				}{Connected: true}},
				Sync: survey.GatewayControl{Role: "active", Peer: survey.PingState{
					Value: networkingv1beta1.Connected, Latency: time.Duration(1200+n%7*40) * time.Microsecond, LatencyText: fmt.Sprintf("%.2f ms", 1.2+float64(n%7)*0.04), MTU: 1340,
				}},
				DataPlane: survey.DataPlane{
					MTU: 1340, Configured: true,
					Egress:  survey.Direction{Packets: 1000 * n, Bytes: 1_300_000 * n, Verdicts: map[string]uint64{"Forwarded": 1000 * n, "DropNoMapping": 3 * n}},
					Ingress: survey.Direction{Packets: 700 * n, Bytes: 400_000 * n, Verdicts: map[string]uint64{"Forwarded": 700 * n, "DropNoAddress": n / 4}},
					Tunnel:  survey.TunnelStats{LastHandshake: at.Add(-20 * time.Second), RxHandshakes: n / 10, Self: keyText(self), Peer: keyText(id)},
				},
			},
		},
		PublicKeys: []networkingv1beta1.PublicKey{{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: namespace}, Spec: networkingv1beta1.PublicKeySpec{PublicKey: keyOf(id)}}},
		Connection: &networkingv1beta1.Connection{
			ObjectMeta: metav1.ObjectMeta{Name: "gw-" + id, Namespace: namespace},
			Status:     networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected, Conditions: well, Latency: networkingv1beta1.ConnectionLatency{Value: "1.21ms", Timestamp: metav1.NewTime(at)}},
		},
	}
}

func cidrs(pod, external string) networkingv1beta1.ClusterConfig {
	return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
		Pod: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pod)}}, External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)}},
	}}
}

// clusterWith is a cluster with nodes and healthy peerings.
func clusterWith(id string, nodes, tick int, peers ...string) *survey.Cluster {
	at := time.Now()
	c := &survey.Cluster{
		ReadAt: at, Installation: survey.Installation{ClusterID: id, Version: "v0.6.0", KubernetesVersion: "v1.36.3", Namespace: "liqo"},
		Networks: survey.Networks{Pod: []survey.Network{{Name: "pod", CIDR: "10.243.0.0/16"}}, External: []survey.Network{{Name: "external", CIDR: "10.70.0.0/16"}}},
	}
	for i := range nodes {
		name := fmt.Sprintf("%s-%d", id, i+1)
		c.Nodes = append(c.Nodes, survey.Node{Name: name, Internal: &networkingv1beta1.InternalNode{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: networkingv1beta1.InternalNodeStatus{NodeIP: networkingv1beta1.NodeIP{Remote: "192.0.2.1"}},
		}})
	}
	for i, peer := range peers {
		p := peerOf(id, peer, i, at, tick)
		for _, n := range c.Nodes {
			p.Tunnels = append(p.Tunnels, n.Name)
		}
		c.Peers = append(c.Peers, p)
	}
	return c
}

// cutTunnel has the peer of a peering not answer any more.
func cutTunnel(p *survey.Peer) {
	p.Connection.Status.Value = networkingv1beta1.ConnectionError
	p.Connection.Status.Conditions = []metav1.Condition{{
		Type: string(networkingv1beta1.ConditionPeerAnswers), Status: metav1.ConditionFalse, Reason: "NoHandshake",
		Message: "no handshake for 3m0s: nothing comes back from 203.0.113.7:51840",
	}}
	p.Gateway.Report.Sync.Peer = survey.PingState{Value: networkingv1beta1.ConnectionError}
}

// accessTo is a cluster that knows a few pods and objects.
func accessTo(id string) *access.Cluster {
	pods := fake.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id + "-client"}, Spec: corev1.PodSpec{NodeName: id + "-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.243.2.20"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id + "-host"}, Spec: corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "192.0.2.1"}},
	)
	objects := clientfake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(
		&networkingv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan",
			Annotations: map[string]string{"note": `<img src=x onerror="document.title='owned'">`}}},
	).Build()
	return &access.Cluster{
		Options: access.Options{Origin: "kubeconfig /home/me/.kube/config, context " + id, LiqoNamespace: "liqo"},
		Config:  &rest.Config{Host: "https://" + id + ".example:6443"}, Client: objects, Clientset: pods,
	}
}

// start serves the page of some clusters until the test ends. Read stands for reading
// them.
func start(t *testing.T, ids []string, change func(*Server)) *Server {
	t.Helper()
	config := Config{Version: "v0.6.0", Interval: 20 * time.Millisecond}
	for _, id := range ids {
		config.Clusters = append(config.Clusters, accessTo(id))
	}
	s, err := New(config, 0)
	if err != nil {
		t.Fatal(err)
	}
	change(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

var (
	screenshots = flag.String("page.screenshots", "", "folder for pictures of every view")
)

// inDocs are the pictures that the documents show.
var inDocs = map[string]string{"down-light.png": "console.png", "live-light.png": "console-packet.png", "past-dark.png": "console-plots.png"}

// keep writes a picture for somebody to look at, where -page.screenshots says where.
func keep(t *testing.T, name string, picture []byte) {
	t.Helper()
	write := func(path string) {
		if err := os.WriteFile(path, picture, 0o644); err != nil {
			t.Error(err)
		}
	}
	if *screenshots != "" {
		write(filepath.Join(*screenshots, name))
	}
	if to := inDocs[name]; golden.Update() && to != "" {
		picture = small(t, picture)
		write("../../docs/" + to)
	}
}

// small is a picture of a page with its 256 most frequent colours.
func small(t *testing.T, in []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[color.Color]int)
	area := picture.Bounds()
	for y := range area.Dy() {
		for x := range area.Dx() {
			count[picture.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	out := image.NewPaletted(area, colours[:min(len(colours), 256)])
	draw.Draw(out, area, picture, image.Point{}, draw.Src)
	var file bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, out); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// keyOf is a cluster's public key.
func keyOf(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:]
}

func keyText(id string) string { return base64.StdEncoding.EncodeToString(keyOf(id)) }
