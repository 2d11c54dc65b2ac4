package trace

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/golden"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
	now    = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
)

// side is one end of a peering that works: both clusters use 10.243.0.0/16 and
// 10.70.0.0/16, and call the other's remapped and remappedExternal.
func side(name, id, peer, remapped, remappedExternal, node string) Side {
	ns := "liqo-tenant-" + peer
	meta := metav1.ObjectMeta{Namespace: ns, Name: peer}
	gw := "gw-" + peer + "-1"
	report := &survey.GatewayReport{Time: now, Started: now.Add(-time.Hour)}
	report.Sync.Peer = survey.PingState{Value: networkingv1beta1.Connected, LatencyText: "1.2ms"}
	report.DataPlane = survey.DataPlane{
		Configured: true, MTU: 1340,
		Remote: []survey.Mapping{
			{Inside: prefix(remapped), Outside: prefix("10.243.0.0/16")}, {Inside: prefix(remappedExternal), Outside: prefix("10.70.0.0/16")},
		},
		LocalPods: []netip.Prefix{prefix("10.243.0.0/16")}, External: []netip.Prefix{prefix("10.70.0.0/16")},
		Nodes: []survey.NodeTunnel{{Name: node, VNI: 7, Underlay: addr("172.18.0.2"), Encapsulation: "geneve", LastSeen: now.Add(-3 * time.Second)}},
		Tunnel: survey.TunnelStats{
			Peer: "key", Endpoint: netip.MustParseAddrPort("203.0.113.9:51820"), ListenPort: 51820, LastHandshake: now.Add(-time.Minute),
		},
	}
	list := func(texts ...networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: texts}
	}
	configuration := &networkingv1beta1.Configuration{ObjectMeta: meta}
	configuration.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: list("10.243.0.0/16"), External: list("10.70.0.0/16")}
	configuration.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
		Pod: list(networkingv1beta1.CIDR(remapped)), External: list(networkingv1beta1.CIDR(remappedExternal)),
	}}
	return Side{
		Name: name, ID: id, Nodes: []survey.Node{{Name: node, Internal: &networkingv1beta1.InternalNode{}}},
		Peer: &survey.Peer{
			ID: peer, Namespace: ns, Configuration: configuration,
			Gateway: &survey.Gateway{
				Kind: "GatewayServer", Namespace: ns, Name: peer, Report: report,
				Pods: []survey.Pod{{Namespace: ns, Name: gw, Node: node, Active: true, Ready: true}},
			},
			Connection: &networkingv1beta1.Connection{ObjectMeta: meta},
			Fabric:     &networkingv1beta1.InternalFabric{ObjectMeta: meta},
		},
		Exposed: []survey.Exposed{{Namespace: "liqo", Name: "printer", IP: "192.168.7.7", Remapped: "10.70.0.7"}},
		Agents: map[string]Agent{node: {Report: &survey.FabricReport{
			Rules: []string{"600: not from all fwmark 0x5c lookup 6091"},
			Tunnels: []survey.FabricTunnel{{
				Name: "liqo." + peer, Owner: "InternalFabric " + ns + "/" + peer, Status: "up", Kind: "geneve", VNI: 7, MTU: 1340,
				Gateway: addr("10.243.9.9"), Port: 6091, Routes: []string{remapped + " dev liqo." + peer, remappedExternal + " dev liqo." + peer},
			}},
		}}},
	}
}

// world is a packet from a pod in rome to one in milan, and all is well.
func world() *Facts {
	remote := side("remote", "milan", "rome", "10.81.0.0/16", "10.82.0.0/16", "milan-1")
	remote.Target = &Pod{Namespace: "shop", Name: "web", Node: "milan-1", Addrs: []netip.Addr{addr("10.243.2.20")}, Phase: "Running"}
	return &Facts{
		From:  Pod{Namespace: "default", Name: "client", Node: "rome-1", Addrs: []netip.Addr{addr("10.243.1.5")}, Phase: "Running"},
		To:    addr("10.71.2.20"),
		Port:  443,
		Local: side("local", "rome", "milan", "10.71.0.0/16", "10.73.0.0/16", "rome-1"), Remote: &remote,
	}
}

// TestGolden: the way as people see it.
func TestGolden(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"well.txt":     func(*Facts) {},
		"one-side.txt": func(f *Facts) { f.Remote = nil },
		"silent.txt": func(f *Facts) {
			f.Remote, f.RemoteErr = nil, errors.New("(remote) reach the cluster: the API server https://milan does not answer: check that the cluster runs")
		},
		"host.txt":  func(f *Facts) { f.To, f.Remote.Target = addr("10.73.0.7"), nil },
		"stops.txt": func(f *Facts) { f.Remote.report().DataPlane.Nodes[0].LastSeen = now.Add(-time.Hour) },
		"unasked.txt": func(f *Facts) {
			f.Local.Agents, f.Local.Peer.Gateway.Report, f.Local.Peer.Gateway.ReportErr = nil, nil, errors.New("pods/exec is forbidden")
			f.Remote.Peer.Gateway.Report = nil
		},
	} {
		f := world()
		change(f)
		var out bytes.Buffer
		if err := Trace(f).Write(&out); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "testdata/"+name, out.String())
	}
}

// TestPathMTU: the MSS is the one that follows from what the path carries.
func TestPathMTU(t *testing.T) {
	f := world()
	f.Local.report().DataPlane.MTU, f.Local.report().DataPlane.PathMTU = 8900, 1440
	var out bytes.Buffer
	if err := Trace(f).Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"MTU 8900, the path to the peer carries 1440: TCP MSS at most 1400\n",
		"MTU 1340: TCP MSS at most 1300\n", // the other end
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// TestStops: every fact that stops a packet is found, at its hop.
func TestStops(t *testing.T) {
	condition := func(s *Side, reason, message string) {
		s.Nodes[0].Internal.Status.Conditions = []metav1.Condition{{Type: "TunnelsReady", Status: "False", Reason: reason, Message: message}}
	}
	dropped := func(direction, reason, src, dst string, port uint16, ago time.Duration) []drops.Drop {
		return []drops.Drop{{Direction: direction, Reason: reason, Source: addr(src), Destination: addr(dst), DestinationPort: port, Time: now.Add(-ago)}}
	}
	for name, tt := range map[string]struct {
		change func(*Facts)
		want   string // cluster, kind, message, part of the fix
	}{
		"pod on no node":     {func(f *Facts) { f.From.Node, f.From.Phase = "", "Pending" }, "local pod: the pod is not on a node; describe pod client"},
		"no IPv4":            {func(f *Facts) { f.From.Addrs = nil }, "local pod: the pod has no address in the family of 10.71.2.20; "},
		"diverted":           {func(f *Facts) { condition(&f.Local, "TrafficDiverted", "the rule 500 \x1b[2J comes before ours") }, "local node: TrafficDiverted; fabric status"},
		"no fabric":          {func(f *Facts) { f.Local.Peer.Fabric = nil }, "local node: the node does not know the gateway: there is no InternalFabric for the peering; "},
		"no link":            {func(f *Facts) { f.Local.Agents["rome-1"].Report.Tunnels = nil }, "local node: the node has no link to the gateway; fabric status"},
		"link missing":       {func(f *Facts) { f.Local.Agents["rome-1"].Report.Tunnels[0].Status = "missing" }, "local node: link liqo.milan is missing; fabric status"},
		"link has a problem": {func(f *Facts) { f.Local.Agents["rome-1"].Report.Tunnels[0].Problem = "not ours" }, "local node: link liqo.milan: not ours; fabric status"},
		"no route":           {func(f *Facts) { f.Local.Agents["rome-1"].Report.Tunnels[0].Routes = []string{"10.73.0.0/16"} }, "local node: the node has no route that sends 10.71.2.20 into link liqo.milan; spec.remoteCIDRs of InternalFabric liqo-tenant-milan/milan"},
		"no gateway":         {func(f *Facts) { f.Local.Peer.Gateway = nil }, "local gateway: the peering has no gateway; network connect"},
		"no pod leads":       {func(f *Facts) { f.Local.Peer.Gateway.Pods = nil }, "local gateway: no pod of the gateway carries traffic; gateway-pods"},
		"not configured": {func(f *Facts) {
			f.Local.report().DataPlane.Configured = false
			f.Local.report().Sync.Refused = manifests.Problems{{Object: "x", Reason: "y"}}
		}, "local gateway: the gateway has no configuration; objects-applied"},
		"node unknown":     {func(f *Facts) { f.Local.report().DataPlane.Nodes = nil }, "local gateway: the gateway does not know node rome-1; gateway status"},
		"node never heard": {func(f *Facts) { f.Local.report().DataPlane.Nodes[0].LastSeen = time.Time{} }, "local gateway: the gateway has never received a packet from node rome-1; UDP 6091"},
		"node silent":      {func(f *Facts) { f.Local.report().DataPlane.Nodes[0].LastSeen = now.Add(-time.Minute) }, "local gateway: the gateway has received nothing from node rome-1 for 1m0s; UDP 6091"},
		"chain drops all": {func(f *Facts) {
			f.Local.report().DataPlane.Filter = []survey.FilterChain{{Table: "a", Chain: "b", Policy: "drop"}}
		}, "local gateway: filter chain a/b drops everything; kubectl get firewallconfigurations"},
		"dropped by a rule": {func(f *Facts) {
			f.Local.Drops = dropped("egress", "DropFilter", "10.243.1.5", "10.71.2.20", 443, 12*time.Second)
		}, "local gateway: the gateway dropped a matching packet 12s ago: DropFilter; kubectl get firewallconfigurations"},
		"no mapping":          {func(f *Facts) { f.Local.report().DataPlane.Remote = nil }, "local translation: the gateway has no mapping for 10.71.2.20; Configuration liqo-tenant-milan/milan"},
		"not of the pod CIDR": {func(f *Facts) { f.From.Addrs[0], f.Local.report().DataPlane.External = addr("172.18.0.2"), nil }, "local translation: 172.18.0.2 is not in the pod CIDR of this cluster; --pod-cidr"},
		"no key":              {func(f *Facts) { f.Local.report().DataPlane.Tunnel.Peer = "" }, "local tunnel: the key of the peer is not known; endpoint and keys"},
		"no endpoint":         {func(f *Facts) { f.Local.report().DataPlane.Tunnel.Endpoint = netip.AddrPort{} }, "local tunnel: the address of the peer's gateway is not known; endpoint and keys"},
		"no session":          {func(f *Facts) { f.Local.report().Sync.Peer.Value = networkingv1beta1.Connecting }, "local tunnel: the peer's gateway does not answer; reachability and keys"},
		"peer unknown there":  {func(f *Facts) { f.Remote.Peer = nil }, "remote translation: this cluster does not know the other one; network connect"},
		"no gateway there":    {func(f *Facts) { f.Remote.Peer.Gateway = nil }, "remote translation: the peering has no gateway; network connect"},
		"dropped there":       {func(f *Facts) { f.Remote.Drops = dropped("ingress", "DropNoNode", "10.243.1.5", "10.243.2.20", 443, 0) }, "remote translation: the gateway dropped a matching packet 0s ago: DropNoNode; check nodes"},
		"source not ours":     {func(f *Facts) { f.Remote.report().DataPlane.Remote[0].Outside = prefix("10.9.0.0/16") }, "remote translation: 10.243.1.5 is not an address of rome according to the configuration of this gateway; Configurations of both clusters"},
		"not theirs":          {func(f *Facts) { f.Remote.report().DataPlane.LocalPods = nil }, "remote translation: 10.243.2.20 is not an address of this cluster; check configuration"},
		"no IP object":        {func(f *Facts) { f.To, f.Remote.Exposed = addr("10.73.0.7"), nil }, "remote translation: no IP object assigns 10.70.0.7 to a host; kubectl get ips"},
		"no pod there":        {func(f *Facts) { f.Remote.Target = nil }, "remote pod: no pod in this cluster has the address 10.243.2.20; kubectl get pods"},
		"silent node there":   {func(f *Facts) { f.Remote.report().DataPlane.Nodes[0].LastSeen = time.Time{} }, "remote gateway: the gateway has never received a packet from node milan-1; UDP 6091"},
		"no link there":       {func(f *Facts) { f.Remote.Agents["milan-1"].Report.Tunnels = nil }, "remote node: the node has no link to the gateway; fabric status"},
		"pod is done":         {func(f *Facts) { f.Remote.Target.Phase = "Succeeded" }, "remote pod: the pod is not running: it is Succeeded; describe pod web"},
		"no route back":       {func(f *Facts) { f.Remote.Agents["milan-1"].Report.Tunnels[0].Routes = nil }, "remote node: the node has no route that sends 10.81.1.5 into link liqo.rome; fabric status"},
		"no session back":     {func(f *Facts) { f.Remote.report().Sync.Peer.Value = networkingv1beta1.Connecting }, "remote tunnel: the peer's gateway does not answer; reachability and keys"},
		"dropped on the way back": {func(f *Facts) {
			f.Local.Drops = []drops.Drop{{Direction: "ingress", Reason: "DropFilter", Source: addr("10.243.2.20"), Destination: addr("10.243.1.5"), SourcePort: 443, Time: now}}
		}, "local translation: the gateway dropped a matching packet 0s ago: DropFilter; firewallconfigurations"},
	} {
		f := world()
		tt.change(f)
		stop := Trace(f).Stop()
		if stop == nil {
			t.Errorf("%s: nothing stops it", name)
			continue
		}
		want, fix, _ := strings.Cut(tt.want, "; ")
		if got := fmt.Sprintf("%s %s: %s", stop.Cluster, stop.Kind, stop.Problem.Message); got != want || !strings.Contains(stop.Problem.Fix, fix) {
			t.Errorf("%s: %s; %s\nwant %s", name, got, stop.Problem.Fix, tt.want)
		}
		if strings.ContainsRune(stop.Problem.Cause, '\x1b') {
			t.Errorf("%s: a terminal obeys %q", name, stop.Problem.Cause)
		}
	}
}

// TestGoesOn: what is no reason to stop.
func TestGoesOn(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"another port": func(f *Facts) {
			f.Local.Drops = []drops.Drop{{Direction: "egress", Reason: "DropFilter", Source: addr("10.243.1.5"), Destination: addr("10.71.2.20"), DestinationPort: 80, Time: now}}
		},
		"long ago": func(f *Facts) {
			f.Local.Drops = []drops.Drop{{Direction: "egress", Reason: "DropFilter", Source: addr("10.243.1.5"), Destination: addr("10.71.2.20"), DestinationPort: 443, Time: now.Add(-2 * time.Minute)}}
		},
		"a pod of nodes": func(f *Facts) { f.From.Addrs[0] = addr("172.18.0.2") },
		"not seen":       func(f *Facts) { f.Remote.Target, f.Remote.TargetErr = nil, errors.New("pods may not be read") },
		"link kept":      func(f *Facts) { f.Local.Agents["rome-1"].Report.Tunnels[0].Status = "kept" },
	} {
		f := world()
		change(f)
		if stop := Trace(f).Stop(); stop != nil {
			t.Errorf("%s: stops at %+v: %+v", name, stop, stop.Problem)
		}
	}
}

func TestPeerFor(t *testing.T) {
	f := world()
	c := &survey.Cluster{Peers: []survey.Peer{{ID: "bare"}, *f.Local.Peer}}
	for to, want := range map[string]string{
		"10.71.2.20": "milan", "10.73.0.7": "milan",
		"10.243.2.20": "10.243.2.20 is an address that milan itself uses; in this cluster it is remapped; use 10.71.2.20",
		"10.70.0.7":   "10.70.0.7 is an address that milan itself uses; in this cluster it is remapped; use 10.73.0.7",
		"8.8.8.8":     "8.8.8.8 is not in a CIDR of any peer: the packet does not reach a gateway; use the remapped addresses: 'liqoctl info peer' shows the CIDRs",
		"fd00::1":     "fd00::1 is not in a CIDR of any peer: the packet does not reach a gateway; use the remapped addresses: 'liqoctl info peer' shows the CIDRs",
	} {
		peer, problem := PeerFor(c, addr(to))
		got := ""
		if peer != nil {
			got = peer.ID
		} else {
			got = problem.Message + "; " + problem.Fix
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", to, got, want)
		}
	}
}
