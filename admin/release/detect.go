package release

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/text"
)

// Found are prefixes and who says so.
type Found struct {
	Prefixes []netip.Prefix
	From     string
}

// A witness is one place that may tell the prefixes.
type witness struct {
	name string
	tell func(Facts) []netip.Prefix
}

// podWitnesses tell the prefixes of pods. Those that assign the addresses come first, then
// those that only say what was planned.
var podWitnesses = []witness{
	{"the network configuration of OpenShift", func(f Facts) []netip.Prefix { return f.OpenShift.Pods }},
	{"the IPPools of Calico", func(f Facts) []netip.Prefix { return f.CalicoPools }},
	{"ConfigMap kube-system/cilium-config", ciliumPool},
	{"the ConfigMap of flannel", flannelNetwork},
	{"ConfigMap kube-system/kubeadm-config", func(f Facts) []netip.Prefix { return kubeadmSubnet(f, "podSubnet") }},
	{"--cluster-cidr of the kube-controller-manager", func(f Facts) []netip.Prefix { return argument(f.ControlPlane, "cluster-cidr") }},
	{"--cluster-cidr of k3s", func(f Facts) []netip.Prefix { return nodeArgument(f, "cluster-cidr") }},
	{"ConfigMap kube-system/kube-proxy", kubeProxyCIDR},
}

// serviceWitnesses tell the prefixes of Services.
var serviceWitnesses = []witness{
	{"the ServiceCIDRs of the API server", func(f Facts) []netip.Prefix { return f.ServiceCIDRs }},
	{"--service-cluster-ip-range of the control plane", func(f Facts) []netip.Prefix { return argument(f.ControlPlane, "service-cluster-ip-range") }},
	{"ConfigMap kube-system/kubeadm-config", func(f Facts) []netip.Prefix { return kubeadmSubnet(f, "serviceSubnet") }},
	{"the network configuration of OpenShift", func(f Facts) []netip.Prefix { return f.OpenShift.Services }},
	{"--service-cidr of k3s", func(f Facts) []netip.Prefix { return nodeArgument(f, "service-cidr") }},
	{"the API server", serviceRange},
}

// detectPods finds the prefixes of pods. The error says what to do where nobody
// knows them, or where what they say cannot be true.
func detectPods(f Facts, p Provider) (Found, error) {
	found := ask(podWitnesses, f)
	if found.Prefixes == nil {
		if u := usual(known[p].pods, f.nodePodCIDRs()); u != nil {
			found = Found{u, fmt.Sprintf("the default of %s, which contains the pods of all nodes", p)}
		}
	}
	if found.Prefixes == nil {
		return found, unknownPods(f, p)
	}
	if who := f.podOutside(found.Prefixes); who != "" {
		return found, fmt.Errorf("the pod CIDR is not clear: according to %s it is %s, but %s: set --pod-cidr", found.From, join(found.Prefixes), who)
	}
	return found, nil
}

// podOutside tells of a pod that none of the prefixes covers, if there is one.
func (f Facts) podOutside(ps []netip.Prefix) string {
	for _, pod := range f.Pods {
		if outside(ps, pod.Address) {
			return fmt.Sprintf("pod %s has the address %s", pod.Pod, pod.Address)
		}
	}
	return ""
}

// serviceOutside tells of the Service that every cluster has, if none of the
// prefixes covers it.
func (f Facts) serviceOutside(ps []netip.Prefix) string {
	if a := f.KubernetesService; a.IsValid() && outside(ps, a) {
		return fmt.Sprintf("the Service default/kubernetes has the address %s", a)
	}
	return ""
}

// unknownPods says how the user finds out what the cluster does not tell.
func unknownPods(f Facts, p Provider) error {
	s := "nothing in the cluster shows its pod CIDR: set --pod-cidr"
	if parts := f.nodePodCIDRs(); len(parts) > 0 {
		s += fmt.Sprintf(" (the present nodes have %s, future nodes may have others: perhaps it is %s)", join(parts), join(guess(parts)))
	}
	if how := known[p].ask; how != "" {
		s += "; to find it: " + how
	}
	return fmt.Errorf("%s", s)
}

// detectServices finds the prefixes of Services.
func detectServices(f Facts, p Provider) (Found, error) {
	found := ask(serviceWitnesses, f)
	if found.Prefixes == nil && f.KubernetesService.IsValid() {
		if u := usual(known[p].services, []netip.Prefix{netip.PrefixFrom(f.KubernetesService, f.KubernetesService.BitLen())}); u != nil {
			found = Found{u, fmt.Sprintf("the default of %s", p)}
		}
	}
	if found.Prefixes == nil {
		return found, fmt.Errorf("nothing in the cluster shows its Service CIDR: set --service-cidr")
	}
	if who := f.serviceOutside(found.Prefixes); who != "" {
		return found, fmt.Errorf("the Service CIDR is not clear: according to %s it is %s, but %s: set --service-cidr", found.From, join(found.Prefixes), who)
	}
	return found, nil
}

func ask(ws []witness, f Facts) Found {
	for _, w := range ws {
		if ps := w.tell(f); len(ps) > 0 {
			return Found{ps, w.name}
		}
	}
	return Found{}
}

func (f Facts) nodePodCIDRs() (ps []netip.Prefix) {
	for _, n := range f.Nodes {
		ps = append(ps, n.PodCIDRs...)
	}
	slices.SortFunc(ps, netip.Prefix.Compare)
	return slices.Compact(ps)
}

// ciliumPool is what Cilium gives out itself. In its other modes somebody else
// does.
func ciliumPool(f Facts) []netip.Prefix {
	if !strings.HasPrefix(f.Cilium["ipam"], "cluster-pool") {
		return nil
	}
	return append(prefixes(f.Cilium["cluster-pool-ipv4-cidr"]), prefixes(f.Cilium["cluster-pool-ipv6-cidr"])...)
}

func flannelNetwork(f Facts) []netip.Prefix {
	var c struct{ Network, IPv6Network string }
	if json.Unmarshal([]byte(f.Flannel), &c) != nil {
		return nil
	}
	return append(prefixes(c.Network), prefixes(c.IPv6Network)...)
}

func kubeadmSubnet(f Facts, field string) []netip.Prefix {
	var c struct {
		Networking map[string]string `json:"networking"`
	}
	if yaml.Unmarshal([]byte(f.Kubeadm), &c) != nil {
		return nil
	}
	return prefixes(c.Networking[field])
}

func kubeProxyCIDR(f Facts) []netip.Prefix {
	var c struct {
		ClusterCIDR string `json:"clusterCIDR"`
	}
	if yaml.Unmarshal([]byte(f.KubeProxy), &c) != nil {
		return nil
	}
	return prefixes(c.ClusterCIDR)
}

// nodeArgument is that of the first server node that has it.
func nodeArgument(f Facts, name string) []netip.Prefix {
	for _, n := range f.Nodes {
		if ps := argument(n.Args, name); ps != nil {
			return ps
		}
	}
	return nil
}

// argument finds --name=value, or --name followed by value.
func argument(args []string, name string) []netip.Prefix {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return prefixes(v)
		}
		if a == "--"+name && i+1 < len(args) {
			return prefixes(args[i+1])
		}
	}
	return nil
}

// validRange is how an API server ends its refusal of an address. There is no
// field for it; from Kubernetes 1.33 on there are ServiceCIDRs instead.
var validRange = regexp.MustCompile(`[Tt]he range of valid IPs is ([0-9a-fA-F:./]+)`)

func serviceRange(f Facts) []netip.Prefix {
	if m := validRange.FindStringSubmatch(f.ServiceRange); m != nil {
		return prefixes(m[1])
	}
	return nil
}

// prefixes reads a list separated by commas or spaces. If one element is not a prefix, there
// are none.
func prefixes(s string) (ps []netip.Prefix) {
	for _, text := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil
		}
		ps = append(ps, p.Masked())
	}
	return ps
}

// guess is what a list of nodes' prefixes was probably cut from: of each family
// the smallest prefix that covers them, or a larger one that is usual.
func guess(parts []netip.Prefix) (ps []netip.Prefix) {
	for _, family := range []struct{ length, usual int }{{32, 16}, {128, 56}} {
		var all netip.Prefix
		for _, p := range parts {
			if p.Addr().BitLen() != family.length {
				continue
			}
			if !all.IsValid() {
				all = netip.PrefixFrom(p.Addr(), min(p.Bits(), family.usual)).Masked()
			}
			for !contains(all, p) {
				all = netip.PrefixFrom(all.Addr(), all.Bits()-1).Masked()
			}
		}
		if all.IsValid() {
			ps = append(ps, all)
		}
	}
	return ps
}

// contains tells whether all addresses of q are in p.
func contains(p, q netip.Prefix) bool { return p.Bits() <= q.Bits() && p.Contains(q.Addr()) }

// outside tells whether an address is in none of the prefixes, although some are
// of its family.
func outside(ps []netip.Prefix, a netip.Addr) bool {
	family := false
	for _, p := range ps {
		if p.Contains(a) {
			return false
		}
		family = family || p.Addr().BitLen() == a.BitLen()
	}
	return family
}

func join(ps []netip.Prefix) string { return cmp.Or(text.Join(ps, ","), "nothing") }
