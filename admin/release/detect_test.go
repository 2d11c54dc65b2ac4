package release

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// equal compares values of netip, too.
var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func cidrs(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// nodes are nodes with a prefix for each.
func nodes(podCIDRs ...string) (ns []Node) {
	for i, s := range podCIDRs {
		ns = append(ns, Node{Name: "node-" + string(rune('a'+i)), PodCIDRs: cidrs(strings.Split(s, ",")...)})
	}
	return ns
}

const kubeadmConfig = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {dnsDomain: cluster.local, podSubnet: "10.244.0.0/16,fd00:10:244::/56", serviceSubnet: "10.96.0.0/12,fd00:10:96::/112"}
`

func TestDetectPods(t *testing.T) {
	pod := func(address string) []PodAddress {
		return []PodAddress{{types.NamespacedName{Namespace: "kube-system", Name: "coredns"}, netip.MustParseAddr(address)}}
	}
	for _, tt := range []struct {
		name     string
		facts    Facts
		provider Provider
		want     Found
		err      string
	}{
		{"kubeadm", Facts{Kubeadm: kubeadmConfig}, Kubeadm, Found{cidrs("10.244.0.0/16", "fd00:10:244::/56"), "ConfigMap kube-system/kubeadm-config"}, ""},
		{"the CNI's own pool before what was planned", Facts{Kubeadm: kubeadmConfig, CalicoPools: cidrs("192.168.0.0/16")}, Kubeadm,
			Found{cidrs("192.168.0.0/16"), "the IPPools of Calico"}, ""},
		{"Cilium's pool", Facts{Cilium: map[string]string{"ipam": "cluster-pool", "cluster-pool-ipv4-cidr": "10.0.0.0/8 11.0.0.0/8"}}, "",
			Found{cidrs("10.0.0.0/8", "11.0.0.0/8"), "ConfigMap kube-system/cilium-config"}, ""},
		{"Cilium that follows the nodes", Facts{Cilium: map[string]string{"ipam": "kubernetes", "cluster-pool-ipv4-cidr": "10.0.0.0/8"}, KubeProxy: "clusterCIDR: 10.10.0.0/16"}, "",
			Found{cidrs("10.10.0.0/16"), "ConfigMap kube-system/kube-proxy"}, ""},
		{"flannel", Facts{Flannel: `{"Network": "10.5.0.0/16", "IPv6Network": "fd05::/56", "Backend": {"Type": "vxlan"}}`}, "",
			Found{cidrs("10.5.0.0/16", "fd05::/56"), "the ConfigMap of flannel"}, ""},
		{"the control plane's flags", Facts{ControlPlane: []string{"kube-controller-manager", "--cluster-cidr=10.6.0.0/16"}}, "",
			Found{cidrs("10.6.0.0/16"), "--cluster-cidr of the kube-controller-manager"}, ""},
		{"OpenShift", Facts{OpenShift: OpenShiftNetwork{Pods: cidrs("10.128.0.0/14")}}, OpenShift, Found{cidrs("10.128.0.0/14"), "the network configuration of OpenShift"}, ""},
		{"k3s with another prefix", Facts{Nodes: []Node{{Args: []string{"server", "--cluster-cidr", "10.7.0.0/16"}}}}, K3s, Found{cidrs("10.7.0.0/16"), "--cluster-cidr of k3s"}, ""},
		{"k3s as it comes", Facts{Nodes: nodes("10.42.0.0/24", "10.42.1.0/24")}, K3s, Found{cidrs("10.42.0.0/16"), "the default of k3s, which contains the pods of all nodes"}, ""},
		{"k3s with nodes elsewhere", Facts{Nodes: nodes("10.43.0.0/24")}, K3s, Found{},
			"nothing in the cluster shows its pod CIDR: set --pod-cidr (the present nodes have 10.43.0.0/24, future nodes may have others: perhaps it is 10.43.0.0/16)"},
		{"only the nodes of today", Facts{Nodes: nodes("10.243.1.0/24,fd00:243:0:1::/64", "10.243.2.0/24,fd00:243:0:2::/64")}, "", Found{},
			"nothing in the cluster shows its pod CIDR: set --pod-cidr (the present nodes have 10.243.1.0/24,10.243.2.0/24,fd00:243:0:1::/64,fd00:243:0:2::/64, future nodes may have others: perhaps it is 10.243.0.0/16,fd00:243::/56)"},
		{"nodes far apart", Facts{Nodes: nodes("10.4.0.0/24", "10.7.0.0/24")}, "", Found{},
			"nothing in the cluster shows its pod CIDR: set --pod-cidr (the present nodes have 10.4.0.0/24,10.7.0.0/24, future nodes may have others: perhaps it is 10.4.0.0/14)"},
		{"a cloud", Facts{}, GKE, Found{},
			"nothing in the cluster shows its pod CIDR: set --pod-cidr; to find it: gcloud container clusters describe NAME --format='value(clusterIpv4Cidr)'"},
		{"pods in it", Facts{Kubeadm: kubeadmConfig, Pods: pod("10.244.3.4")}, Kubeadm, Found{cidrs("10.244.0.0/16", "fd00:10:244::/56"), "ConfigMap kube-system/kubeadm-config"}, ""},
		{"pods elsewhere", Facts{Kubeadm: kubeadmConfig, Pods: pod("192.168.3.4")}, Kubeadm, Found{cidrs("10.244.0.0/16", "fd00:10:244::/56"), "ConfigMap kube-system/kubeadm-config"},
			"the pod CIDR is not clear: according to ConfigMap kube-system/kubeadm-config it is 10.244.0.0/16,fd00:10:244::/56, but pod kube-system/coredns has the address 192.168.3.4: set --pod-cidr"},
		{"a broken configuration", Facts{Kubeadm: "{", Flannel: "{", KubeProxy: "\t"}, "", Found{}, "nothing in the cluster shows its pod CIDR: set --pod-cidr"},
		{"half a prefix", Facts{KubeProxy: "clusterCIDR: 10.10.0.0/16,fd00::"}, "", Found{}, "nothing in the cluster shows its pod CIDR: set --pod-cidr"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := detectPods(tt.facts, tt.provider)
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got, equal); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDetectServices(t *testing.T) {
	address := netip.MustParseAddr("10.96.0.1")
	for _, tt := range []struct {
		name     string
		facts    Facts
		provider Provider
		want     Found
		err      string
	}{
		{"objects", Facts{ServiceCIDRs: cidrs("10.96.0.0/16"), KubernetesService: address, Kubeadm: kubeadmConfig}, "", Found{cidrs("10.96.0.0/16"), "the ServiceCIDRs of the API server"}, ""},
		{"the control plane's flags", Facts{ControlPlane: []string{"--service-cluster-ip-range=10.96.0.0/12"}}, "",
			Found{cidrs("10.96.0.0/12"), "--service-cluster-ip-range of the control plane"}, ""},
		{"kubeadm", Facts{Kubeadm: kubeadmConfig}, "", Found{cidrs("10.96.0.0/12", "fd00:10:96::/112"), "ConfigMap kube-system/kubeadm-config"}, ""},
		{"what the API server answers", Facts{ServiceRange: `Service "x" is invalid: spec.clusterIPs: Invalid value: ["0.0.0.1"]: failed to allocate IP 0.0.0.1: the provided IP (0.0.0.1) is not in the valid range. The range of valid IPs is 10.0.0.0/20`}, EKS,
			Found{cidrs("10.0.0.0/20"), "the API server"}, ""},
		{"k3s as it comes", Facts{KubernetesService: netip.MustParseAddr("10.43.0.1")}, K3s, Found{cidrs("10.43.0.0/16"), "the default of k3s"}, ""},
		{"nothing", Facts{}, "", Found{}, "nothing in the cluster shows its Service CIDR: set --service-cidr"},
		{"the first Service elsewhere", Facts{Kubeadm: kubeadmConfig, KubernetesService: netip.MustParseAddr("172.20.0.1")}, "",
			Found{cidrs("10.96.0.0/12", "fd00:10:96::/112"), "ConfigMap kube-system/kubeadm-config"},
			"the Service CIDR is not clear: according to ConfigMap kube-system/kubeadm-config it is 10.96.0.0/12,fd00:10:96::/112, but the Service default/kubernetes has the address 172.20.0.1: set --service-cidr"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := detectServices(tt.facts, tt.provider)
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got, equal); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestProvider(t *testing.T) {
	for _, tt := range []struct {
		name  string
		facts Facts
		want  Provider
	}{
		{"nothing known", Facts{KubernetesVersion: "v1.36.3"}, ""},
		{"kubeadm", Facts{Kubeadm: kubeadmConfig}, Kubeadm},
		{"kubeadm in a cloud", Facts{Kubeadm: kubeadmConfig, Nodes: []Node{{ProviderID: "aws:///eu-west-1a/i-1"}}}, Kubeadm},
		{"kind, which uses kubeadm", Facts{Kubeadm: kubeadmConfig, Nodes: []Node{{ProviderID: "kind://docker/kind/kind-control-plane"}}}, Kind},
		{"k3s", Facts{KubernetesVersion: "v1.33.1+k3s1"}, K3s},
		{"RKE2", Facts{KubernetesVersion: "v1.33.1+rke2r1"}, K3s},
		{"EKS", Facts{KubernetesVersion: "v1.33.1-eks-1234567"}, EKS},
		{"GKE", Facts{KubernetesVersion: "v1.33.1-gke.1000"}, GKE},
		{"AKS", Facts{Nodes: []Node{{ProviderID: "azure:///subscriptions/1"}}}, AKS},
		{"OpenShift", Facts{OpenShift: OpenShiftNetwork{Pods: cidrs("10.128.0.0/14")}, Nodes: []Node{{ProviderID: "aws:///a"}}}, OpenShift},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.facts.provider(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got)\n%s", diff)
	}
}

func FuzzPrefixes(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "10.0.0.0/8,fd00::/8", "10.0.0.0/8 11.0.0.0/8", "x", "10.0.0.0/33", ",", "10.1.2.3/8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range prefixes(s) {
			if !p.IsValid() || p != p.Masked() {
				t.Errorf("%q: %v", s, p)
			}
		}
		serviceRange(Facts{ServiceRange: s})
		kubeadmSubnet(Facts{Kubeadm: s}, "podSubnet")
		flannelNetwork(Facts{Flannel: s})
	})
}
