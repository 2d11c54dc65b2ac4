package kubernetes

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// advised are commands in what the doctor advises.
var (
	advisedKubectl = regexp.MustCompile(`kubectl -n [^';,]+('[^']*')?`)
	advisedLiqoctl = regexp.MustCompile(`'(liqoctl network connect[^']*)'`)
)

// kubectlAsAdvised runs the kubectl commands that the advice holds, in the cluster
// that it is about.
func kubectlAsAdvised(in func(*world) *kubelab.Cluster) func(*testing.T, *examined, string) {
	return func(t *testing.T, x *examined, advice string) {
		t.Helper()
		commands := advisedKubectl.FindAllString(advice, -1)
		if len(commands) == 0 {
			t.Fatalf("no command in %q", advice)
		}
		admin := x.newShell(in(x.world), x.admin.dir)
		for _, c := range commands {
			t.Logf("%s\n%s", c, admin.ok(t, c))
		}
	}
}

// connectAsAdvised runs the liqoctl network connect that the advice holds, for the
// two clusters and with nothing else said.
func connectAsAdvised(t *testing.T, x *examined, advice string) {
	t.Helper()
	match := advisedLiqoctl.FindStringSubmatch(advice)
	if match == nil {
		t.Fatalf("no liqoctl network connect in %q", advice)
	}
	_, stderr := x.liqoctl(t, x.both(append(strings.Fields(match[1])[1:], "--wait")...)...)
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "WARN") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func clusterA(w *world) *kubelab.Cluster { return w.a }
func clusterB(w *world) *kubelab.Cluster { return w.b }

// faultsOfObjects are made by hands that write into objects.
func faultsOfObjects() []fault {
	return []fault{
		{
			name:   "wrong key",
			says:   survey.ReasonKeys,
			seenBy: clusterB,
			inject: func(t *testing.T, x *examined) {
				key := make([]byte, 32)
				rand.Read(key)
				x.patch(t, x.a, x.here, "publickey/"+x.b.Name, fmt.Sprintf(`{"spec":{"publicKey":%q}}`, base64.StdEncoding.EncodeToString(key)))
			},
			want: symptom{"keys", "local", doctor.Failed, "but the gateway of milan has", "by hand or for another gateway", "liqoctl network connect"},
			heal: connectAsAdvised,
		},
		{
			name: "wrong port, which the session has outlived",
			inject: func(t *testing.T, x *examined) {
				x.patch(t, x.a, x.here, "gatewayclient/"+x.b.Name, `{"spec":{"endpoint":{"port":30743}}}`)
			},
			want: symptom{"endpoint", "local", doctor.Warning, "the client dials 203.0.113.20:30743", "it works because the tunnel has learnt", nodePort},
			heal: kubectlAsAdvised(clusterA),
		},
		{
			name: "wrong port", long: true,
			says: survey.ReasonNotConnected,
			inject: func(t *testing.T, x *examined) {
				x.patch(t, x.a, x.here, "gatewayclient/"+x.b.Name, `{"spec":{"endpoint":{"port":30743}}}`)
				x.Cut() // or the server would find the new client first
				x.kubectl(t, x.a, "-n", x.here, "delete", "pods", "--all")
				x.kubectl(t, x.a, "-n", x.here, "rollout", "status", "deployment/gw-"+x.b.Name, "--timeout=60s")
				x.Mend()
			},
			want: symptom{"reachability", "local", doctor.Failed, "nothing arrives at the server", "this is not where the server is", "correct the port"},
			heal: kubectlAsAdvised(clusterA),
		},
		{
			name: "MTUs differ",
			says: string(networkingv1beta1.ReasonMTUMismatch),
			inject: func(t *testing.T, x *examined) {
				x.patch(t, x.a, x.here, "gatewayclient/"+x.b.Name, `{"spec":{"mtu":1400}}`)
			},
			want: symptom{"mtu", "", doctor.Failed, "it is 1400 here and 1340 there", "get lost in one direction", "--mtu 1340"},
			heal: connectAsAdvised,
		},
		{
			name: "a CIDR of this cluster for the peer's pods",
			says: survey.ReasonCIDRMismatch,
			inject: func(t *testing.T, x *examined) {
				x.patch(t, x.a, x.here, "configuration/"+x.b.Name, fmt.Sprintf(`{"spec":{"remote":{"cidr":{"pod":[%q]}}}}`, kubelab.ServiceCIDR))
			},
			want: symptom{"configuration", "local", doctor.Failed, "are in 10.96.0.0/16, but they are in 10.243.0.0/16", "do not exist there", "liqoctl network connect"},
			heal: connectAsAdvised,
		},
		{
			name: "a prefix given by hand that overlaps",
			says: string(networkingv1beta1.ReasonNetworkRefused),
			inject: func(t *testing.T, x *examined) {
				x.kubectl(t, x.a, "-n", x.here, "patch", x.podNetwork(t), "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"cidr":%q}}`, kubelab.ServiceCIDR))
			},
			want: symptom{"configuration", "local", doctor.Failed, "overlaps 10.96.0.0/16 of Network liqo/service-cidr", "are not settled yet", "that you delete is created again"},
			heal: func(t *testing.T, x *examined, _ string) {
				x.kubectl(t, x.a, "-n", x.here, "delete", x.podNetwork(t))
			},
		},
		{
			name: "a Network by hand that overlaps",
			inject: func(t *testing.T, x *examined) {
				peer, err := remoteCIDR(t.Context(), x.a, x.b.Name)
				if err != nil {
					t.Fatal(err)
				}
				x.apply(t, x.a, fmt.Sprintf(`{"apiVersion":"ipam.liqo.io/v1alpha1","kind":"Network","metadata":{"namespace":"liqo","name":"office","labels":{"ipam.liqo.io/network-not-remapped":"true"}},"spec":{"cidr":%q}}`, peer))
			},
			want:   symptom{"networks", "local", doctor.Failed, "overlaps", "have the same addresses", "delete it"},
			beside: true,
			heal: func(t *testing.T, x *examined, _ string) {
				x.kubectl(t, x.a, "-n", "liqo", "delete", "networks", "office")
			},
		},
		{
			name: "deleted Secret", long: true,
			says:   string(networkingv1beta1.ReasonSecretDeleted),
			inject: func(t *testing.T, x *examined) { x.kubectl(t, x.a, "-n", x.here, "delete", "secret", "gw-"+x.b.Name) },
			want:   symptom{"keys", "local", doctor.Warning, "keeps using the keys that were in it", "", "liqoctl network connect"},
			heal:   connectAsAdvised,
		},
	}
}

// podNetwork is the Network for the pods of b in a.
func (x *examined) podNetwork(t *testing.T) string {
	t.Helper()
	return x.kubectl(t, x.a, "-n", x.here, "get", "networks", "-l", "configuration.liqo.io/cidr-type=pod", "-o", "name")
}

// apply makes or changes an object.
func (x *examined) apply(t *testing.T, c *kubelab.Cluster, manifest string) {
	t.Helper()
	if out, err := c.KubectlInput(manifest, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s: %v\n%s", c.Name, err, out)
	}
}

// faultsOfTheNetwork are between the gateways, or between a gateway and its nodes.
func faultsOfTheNetwork() []fault {
	return []fault{
		{
			name:   "blocked UDP",
			says:   string(networkingv1beta1.ReasonNoAnswer),
			inject: func(_ *testing.T, x *examined) { x.Cut() },
			want:   symptom{"reachability", "local", doctor.Failed, "nothing arrives at the server", "UDP is blocked or misrouted on the way to the server", "check firewalls"},
			heal:   func(_ *testing.T, x *examined, _ string) { x.Mend() },
		},
		{
			name: "UDP lost on the way back", long: true,
			says: string(networkingv1beta1.ReasonNoAnswer),
			inject: func(_ *testing.T, x *examined) {
				x.a.Router.Nft("table ip deaf { chain in { type filter hook prerouting priority raw; iifname wan0 meta l4proto udp drop; }; }")
			},
			want: symptom{"reachability", "local", doctor.Failed, "nothing comes back to the client", "UDP is blocked on the way back", "must send answers back"},
			heal: func(_ *testing.T, x *examined, _ string) { x.a.Router.Nft("delete table ip deaf") },
		},
		{
			name:   "NetworkPolicy that nothing enforces",
			inject: func(t *testing.T, x *examined) { x.apply(t, x.a, denyEgress(x.here)) },
			want:   symptom{"network-policies", "local", doctor.Warning, "it keeps packets to the server from gateway pods", "nothing enforces the policy", "UDP " + nodePort + " to 203.0.113.20/32"},
			heal: func(t *testing.T, x *examined, _ string) {
				x.kubectl(t, x.a, "-n", x.here, "delete", "networkpolicy", "deny-egress")
			},
		},
		{
			name: "NetworkPolicy in the way",
			says: string(networkingv1beta1.ReasonNoAnswer),
			inject: func(t *testing.T, x *examined) {
				x.apply(t, x.a, denyEgress(x.here))
				x.enforce(t, "drop")
			},
			want: symptom{"network-policies", "local", doctor.Failed, "it keeps packets to the server from gateway pods", "NetworkPolicies select the gateway's pod for egress", "UDP " + nodePort + " to 203.0.113.20/32"},
			heal: func(t *testing.T, x *examined, _ string) {
				x.apply(t, x.a, fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":%q,"name":"as-advised"},"spec":{
					"podSelector":{"matchLabels":{"networking.liqo.io/component":"gateway"}},"policyTypes":["Egress"],"egress":[
					{"to":[{"ipBlock":{"cidr":"203.0.113.20/32"}}],"ports":[{"protocol":"UDP","port":%s}]},
					{"to":[{"ipBlock":{"cidr":"192.168.50.11/32"}},{"ipBlock":{"cidr":"192.168.50.12/32"}}],"ports":[{"protocol":"UDP","port":6091}]}]}}`, x.here, nodePort))
				x.enforce(t, "accept")
				t.Cleanup(func() { x.kubectl(t, x.a, "-n", x.here, "delete", "networkpolicy", "deny-egress", "as-advised") })
			},
		},
		{
			name: "missing node tunnel", long: true,
			inject: func(t *testing.T, x *examined) {
				x.withoutAgent(t)
				links, err := liqoLinks(x.a.Nodes[0])
				if err != nil || len(links) != 1 {
					t.Fatalf("%v: %+v", err, links)
				}
				x.a.Nodes[0].Host.Run("ip", "link", "delete", links[0].Name)
			},
			want: symptom{"nodes", "local", doctor.Failed, "has not been heard for", "the agent of the node does not run", "there is no agent pod on the node"},
			says: survey.ReasonNotHeard,
			heal: withAgent,
		},
		{
			name: "policy rule of another program on one node", long: true,
			inject: func(t *testing.T, x *examined) { x.divert(t, "500") },
			want:   symptom{"nodes", "local", doctor.Failed, `the rule "500: from all to`, "", "fabric status"},
			says:   survey.ReasonNodes,
			heal: func(t *testing.T, x *examined, _ string) { // as the finding says: a priority above ours
				x.divert(t, "40000")
				x.a.Nodes[0].Host.Run("ip", "rule", "del", "priority", "500")
				t.Cleanup(func() { x.a.Nodes[0].Host.Run("ip", "rule", "del", "priority", "40000") })
			},
		},
		{
			name: "node whose agent is gone", long: true,
			inject: func(t *testing.T, x *examined) { x.withoutAgent(t) },
			want:   symptom{"nodes", "local", doctor.Warning, "there is no agent pod on it", "its tunnel stays as it is", "DaemonSet"},
			heal:   withAgent,
		},
	}
}

// divert adds a rule on the first node of a that keeps packets from b.
func (w *world) divert(t *testing.T, priority string) {
	t.Helper()
	peer, err := remoteCIDR(t.Context(), w.a, w.b.Name)
	if err != nil {
		t.Fatal(err)
	}
	w.a.Nodes[0].Host.Run("ip", "rule", "add", "priority", priority, "to", peer.String(), "unreachable")
}

func denyEgress(namespace string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":%q,"name":"deny-egress"},"spec":{"podSelector":{},"policyTypes":["Egress"]}}`, namespace)
}

// enforce has the nodes of a do with packets to the server what a network plugin
// that enforces policies does: the one of the lab does not.
func (x *examined) enforce(t *testing.T, verdict string) {
	t.Helper()
	for _, n := range x.a.Nodes {
		n.Host.Nft(fmt.Sprintf(`
table ip policies
delete table ip policies
table ip policies {
	chain forward {
		type filter hook forward priority -200;
		ip daddr %s udp dport %s %s
	}
}`, x.b.Public, nodePort, verdict))
	}
}

// withoutAgent keeps the agent off the first node of a.
func (x *examined) withoutAgent(t *testing.T) {
	t.Helper()
	x.patch(t, x.a, "liqo-fabric", "daemonset/liqo-fabric", fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
		"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":[%q]}]}]}}}}}}}`, x.a.Nodes[0].Name))
	lab.Eventually(t, patience, "the agent is gone", func() error {
		out, err := x.a.Kubectl("-n", "liqo-fabric", "get", "pods", "--field-selector=spec.nodeName="+x.a.Nodes[0].Name, "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("there is %s", out)
		}
		return err
	})
}

// withAgent lets it come back.
func withAgent(t *testing.T, x *examined, _ string) {
	x.patch(t, x.a, "liqo-fabric", "daemonset/liqo-fabric", `{"spec":{"template":{"spec":{"affinity":null}}}}`)
}

// faultsOfClusters are gateways that do not run.
func faultsOfClusters() []fault {
	return []fault{
		{
			name: "gateway scaled to zero", long: true,
			says: survey.ReasonNoPod,
			inject: func(t *testing.T, x *examined) {
				x.kubectl(t, x.b, "-n", "liqo", "scale", "deployment", "liqo-controller", "--replicas=0") // which would undo it
				x.kubectl(t, x.b, "-n", "liqo", "wait", "--for=delete", "pods", "-l", "app.kubernetes.io/name=liqo-controller", "--timeout=60s")
				x.kubectl(t, x.b, "-n", x.there, "scale", "deployment", "gw-"+x.a.Name, "--replicas=0")
				x.kubectl(t, x.b, "-n", x.there, "wait", "--for=delete", "pods", "--all", "--timeout=60s")
			},
			want: symptom{"gateway-pods", "remote", doctor.Failed, "it is scaled to zero pods", "somebody scaled it to zero", "scale deployment gw-rome --replicas=1"},
			heal: func(t *testing.T, x *examined, advice string) {
				kubectlAsAdvised(clusterB)(t, x, advice)
				r, _ := x.examine(t, x.both()...)
				for _, f := range r.Findings {
					if f.Check == "installation" && f.Status == doctor.Warning {
						kubectlAsAdvised(clusterB)(t, x, f.Fix)
					}
				}
			},
		},
		{
			name: "pods of the gateway that are refused", long: true,
			says: string(networkingv1beta1.ReasonDeploymentNotReady),
			inject: func(t *testing.T, x *examined) {
				x.apply(t, x.b, fmt.Sprintf(`{"apiVersion":"v1","kind":"LimitRange","metadata":{"namespace":%q,"name":"tiny"},"spec":{"limits":[{"type":"Container","max":{"memory":"1Ki"}}]}}`, x.there))
				x.kubectl(t, x.b, "-n", x.there, "delete", "pods", "--all")
			},
			want: symptom{"gateway-pods", "remote", doctor.Failed, "the API server refuses its pods", "", ""},
			heal: func(t *testing.T, x *examined, _ string) {
				x.kubectl(t, x.b, "-n", x.there, "delete", "limitrange", "tiny")
				x.kubectl(t, x.b, "-n", x.there, "delete", "replicasets", "--all") // the next one tries at once
			},
		},
		{
			name: "no node takes the gateway", long: true,
			says: string(networkingv1beta1.ReasonDeploymentNotReady),
			inject: func(t *testing.T, x *examined) {
				x.kubectl(t, x.b, "cordon", x.b.Nodes[0].Name, x.b.Nodes[1].Name)
				x.kubectl(t, x.b, "-n", x.there, "delete", "pods", "--all")
			},
			want: symptom{"gateway-pods", "remote", doctor.Failed, "it is not scheduled", "no traffic passes to or from the peer", "make room on a node"},
			heal: func(t *testing.T, x *examined, _ string) {
				x.kubectl(t, x.b, "uncordon", x.b.Nodes[0].Name, x.b.Nodes[1].Name)
			},
		},
		{
			name: "image that is not there", long: true,
			says:   string(networkingv1beta1.ReasonDeploymentNotReady),
			inject: func(t *testing.T, x *examined) { x.template(t, "image", `"sluice.local/gateway:none"`) },
			want:   symptom{"gateway-pods", "remote", doctor.Failed, "its image sluice.local/gateway:none cannot be pulled", "no traffic passes to or from the peer", "name another in the template"},
			heal:   func(t *testing.T, x *examined, _ string) { x.template(t, "image", `"sluice.local/gateway:`+tag+`"`) },
		},
	}
}

// template changes the container in the template of gateway servers, and takes
// what was made of the former one away: a gateway that runs would go on.
func (x *examined) template(t *testing.T, field, value string) {
	t.Helper()
	x.kubectl(t, x.b, "-n", "liqo", "patch", "wggatewayservertemplate", "wireguard-server", "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/deployment/spec/template/spec/containers/0/%s","value":%s}]`, field, value))
	lab.Eventually(t, patience, "the controller has followed", func() error {
		out, err := x.b.Kubectl("-n", x.there, "get", "deployment", "gw-"+x.a.Name, "-o", "jsonpath={.spec.template.spec.containers[0]."+field+"}")
		if err == nil && !strings.Contains(value, out) {
			err = fmt.Errorf("it is %s", out)
		}
		return err
	})
	x.kubectl(t, x.b, "-n", x.there, "delete", "deployment", "gw-"+x.a.Name)
}
