package configuration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// configuration makes one named c of the YAML of its spec.
func configuration(t *testing.T, spec string) *networkingv1beta1.Configuration {
	t.Helper()
	c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Namespace: "tenant", UID: "uc", Generation: 2, CreationTimestamp: metav1.Unix(100, 0),
		Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "peer"},
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatal(err)
	}
	return c
}

func cluster(t *testing.T, text string) *networkingv1beta1.ClusterConfig {
	t.Helper()
	if text == "" {
		return nil
	}
	var c networkingv1beta1.ClusterConfig
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// owned is a Network of the Configuration c with this answer.
func owned(name, asked, given string, reason ipamv1alpha1.ConditionReason, message string) *ipamv1alpha1.Network {
	n := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "tenant", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "networking.liqo.io/v1beta1", Kind: "Configuration", Name: "c", UID: "uc", Controller: new(true)},
		}},
		Spec:   ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(asked)},
		Status: ipamv1alpha1.NetworkStatus{CIDR: ipamv1alpha1.CIDR(given)},
	}
	if reason != "" {
		status := metav1.ConditionFalse
		if given != "" {
			status = metav1.ConditionTrue
		}
		n.Status.Conditions = []metav1.Condition{{Type: "Allocated", Status: status, Reason: string(reason), Message: message}}
	}
	return n
}

// ofLiqo is a Network of the Configuration c as some version of Liqo makes it.
func ofLiqo(name, kind, asked, given string) *ipamv1alpha1.Network {
	n := owned(name, asked, given, "", "")
	n.Labels, n.CreationTimestamp = map[string]string{networkingv1beta1.LabelCIDRType: kind}, metav1.Unix(100, 0)
	return n
}

func installed(name, networkType, cidr string) *ipamv1alpha1.Network {
	n := owned(name, cidr, cidr, "", "")
	n.Namespace, n.OwnerReferences = "liqo", nil
	n.Labels = map[string]string{ipamv1alpha1.LabelNetworkType: networkType}
	return n
}

func belongsTo(n *ipamv1alpha1.Network, kind, name string, uid types.UID) *ipamv1alpha1.Network {
	n.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: new(true)}}
	return n
}

const (
	local     = "local: {cidr: {pod: 10.0.0.0/16, external: 10.70.0.0/16}}\n"
	asScalars = local + "remote: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}"
	asLists   = local + `remote: {cidr: {pod: [10.243.0.0/16, "fd00:10::/64"], external: [10.70.0.0/16]}}`
)

func TestBuild(t *testing.T) {
	pod := func(given string, reason ipamv1alpha1.ConditionReason, message string) *ipamv1alpha1.Network {
		return owned("c-pod-10-243-0-0-16", "10.243.0.0/16", given, reason, message)
	}
	external := func(given string) *ipamv1alpha1.Network {
		return owned("c-external-10-70-0-0-16", "10.70.0.0/16", given, "", "")
	}
	both := []string{"c-pod-10-243-0-0-16", "c-external-10-70-0-0-16"}
	answered := "cidr: {pod: [10.243.0.0/16], external: [10.71.0.0/16]}"
	ours := func(n *ipamv1alpha1.Network, change func(*ipamv1alpha1.Network)) *ipamv1alpha1.Network {
		change(n)
		return n
	}
	for _, tt := range []struct {
		name     string
		spec     string
		status   string // status.remote before
		networks []*ipamv1alpha1.Network
		apply    []string
		remove   []string
		remote   string
		reason   networkingv1beta1.ConditionReason
		message  string // a part
	}{
		{"nothing there yet", asScalars, "", nil, both, nil, "", networkingv1beta1.ReasonWaitingForNetworks,
			"Waiting for all networks to be ready: c-pod-10-243-0-0-16; c-external-10-70-0-0-16"},
		{"one of two answered", asScalars, "", []*ipamv1alpha1.Network{pod("10.243.0.0/16", "", ""), external("")}, both, nil, "",
			networkingv1beta1.ReasonWaitingForNetworks, "Waiting for all networks to be ready: c-external-10-70-0-0-16"},
		{"all answered", asScalars, "", []*ipamv1alpha1.Network{pod("10.243.0.0/16", ipamv1alpha1.ReasonAllocated, "m"), external("10.71.0.0/16")}, both, nil, answered,
			networkingv1beta1.ReasonNetworkCIDRsConfigured, "All network CIDRs are configured"},
		{"lists, and both families", asLists, "", []*ipamv1alpha1.Network{
			external("10.71.0.0/16"), owned("c-pod-fd00-10---64", "fd00:10::/64", "fd00:11::/64", "", ""), pod("10.71.0.0/16", "", ""),
		}, []string{"c-pod-10-243-0-0-16", "c-pod-fd00-10---64", "c-external-10-70-0-0-16"}, nil,
			`cidr: {pod: [10.71.0.0/16, "fd00:11::/64"], external: [10.71.0.0/16]}`, networkingv1beta1.ReasonNetworkCIDRsConfigured, ""},
		{"no external CIDR", local + "remote: {cidr: {pod: 10.243.0.0/16}}", "", []*ipamv1alpha1.Network{pod("10.243.0.0/16", "", "")}, both[:1], nil,
			"cidr: {pod: [10.243.0.0/16]}", networkingv1beta1.ReasonNetworkCIDRsConfigured, ""},
		{"a status that an earlier version wrote", asScalars, "cidr: {pod: 10.243.0.0/16, external: 10.71.0.0/16}", []*ipamv1alpha1.Network{external("10.71.0.0/16")}, both, nil, answered,
			networkingv1beta1.ReasonWaitingForNetworks, ""},
		{"Networks that Liqo 1.0 has named", asScalars, "", []*ipamv1alpha1.Network{ofLiqo("c-external", "external", "10.70.0.0/16", "10.71.0.0/16"), ofLiqo("c-pod", "pod", "10.243.0.0/16", "10.243.0.0/16")},
			[]string{"c-pod", "c-external"}, nil, answered, networkingv1beta1.ReasonNetworkCIDRsConfigured, ""},
		{"a second Network for a prefix", asScalars, answered, []*ipamv1alpha1.Network{external("10.71.0.0/16"), ofLiqo("c-pod", "pod", "10.243.0.0/16", "10.243.0.0/16"),
			ours(ofLiqo("c-pod-10-243-0-0-16", "pod", "10.243.0.0/16", ""), func(n *ipamv1alpha1.Network) { n.CreationTimestamp = metav1.Unix(200, 0) })},
			nil, []string{"c-pod-10-243-0-0-16"}, "", networkingv1beta1.ReasonWaitingForNetworks, "c-pod-10-243-0-0-16 must go first"},
		{"a Network of Liqo for what is not wanted any more", asScalars, "", []*ipamv1alpha1.Network{ofLiqo("c-pod", "pod", "10.9.0.0/16", "10.9.0.0/16"), ofLiqo("c-external", "pod", "10.70.0.0/16", "10.70.0.0/16")},
			nil, []string{"c-pod", "c-external"}, "", networkingv1beta1.ReasonWaitingForNetworks, ""},
		{"a prefix in another spelling", local + `remote: {cidr: {pod: "FD00:10:0::/64"}}`, "", nil, []string{"c-pod-fd00-10---64"}, nil, "", networkingv1beta1.ReasonWaitingForNetworks, ""},
		{"a Network that is not wanted any more", asScalars, answered, []*ipamv1alpha1.Network{pod("10.243.0.0/16", "", ""), external("10.71.0.0/16"),
			owned("c-pod-10-244-0-0-16", "10.244.0.0/16", "10.244.0.0/16", "", "")}, nil, []string{"c-pod-10-244-0-0-16"}, "",
			networkingv1beta1.ReasonWaitingForNetworks, "Waiting for all networks to be ready: c-pod-10-244-0-0-16 must go first"},
		{"a Network that was lost", asScalars, answered, []*ipamv1alpha1.Network{external("10.71.0.0/16")}, both, nil, answered, networkingv1beta1.ReasonWaitingForNetworks, ""},
		{"a Network that is going", asScalars, answered, []*ipamv1alpha1.Network{external("10.71.0.0/16"),
			ours(pod("10.243.0.0/16", "", ""), func(n *ipamv1alpha1.Network) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })},
			both, nil, answered, networkingv1beta1.ReasonWaitingForNetworks, ""},
		{"a status of what spec.remote was", asLists, answered, nil, []string{"c-pod-10-243-0-0-16", "c-pod-fd00-10---64", "c-external-10-70-0-0-16"}, nil, "", networkingv1beta1.ReasonWaitingForNetworks, ""},
		{"a prefix that is denied", asScalars, "", []*ipamv1alpha1.Network{pod("", ipamv1alpha1.ReasonExhausted, "no pool has room: add one"), external("10.71.0.0/16")}, both, nil, "",
			networkingv1beta1.ReasonNetworkRefused, "Network c-pod-10-243-0-0-16: no pool has room: add one"},
		{"a Network that waits itself", asScalars, "", []*ipamv1alpha1.Network{pod("", ipamv1alpha1.ReasonNetworkNotReady, "after the installation"), external("10.71.0.0/16")}, both, nil, "",
			networkingv1beta1.ReasonWaitingForNetworks, "c-pod-10-243-0-0-16: after the installation"},
		{"an answer that cannot be one", asScalars, "", []*ipamv1alpha1.Network{pod("10.0.0.0/8", "", ""), external("10.71.0.0/16")}, both, nil, "",
			networkingv1beta1.ReasonNetworkRefused, `status.cidr is "10.0.0.0/8"`},
		{"a name that is taken", asScalars, "", []*ipamv1alpha1.Network{belongsTo(pod("10.243.0.0/16", "", ""), "Configuration", "other", "uo"), external("10.71.0.0/16")}, both[1:], nil, "",
			networkingv1beta1.ReasonNetworkRefused, "Network c-pod-10-243-0-0-16 exists and belongs to somebody else"},
		{"a Network that somebody made by hand", asScalars, "", []*ipamv1alpha1.Network{ours(pod("10.243.0.0/16", "", ""), func(n *ipamv1alpha1.Network) { n.OwnerReferences = nil })}, both[1:], nil, "",
			networkingv1beta1.ReasonNetworkRefused, "belongs to somebody else"},
		{"a Network of an earlier Configuration", asScalars, "", []*ipamv1alpha1.Network{belongsTo(pod("10.243.0.0/16", "", ""), "Configuration", "c", "earlier")}, both[1:], nil, "",
			networkingv1beta1.ReasonWaitingForNetworks, "c-pod-10-243-0-0-16 (that of an earlier Configuration must go first)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := configuration(t, tt.spec)
			c.Status.Remote = cluster(t, tt.status)
			p := Build(Facts{Configuration: c, Networks: tt.networks, Others: []networkingv1beta1.Configuration{*c}})
			if p.Reason != tt.reason || !strings.Contains(p.Message, tt.message) {
				t.Errorf("%s: %s\nwant %s: ...%s...", p.Reason, p.Message, tt.reason, tt.message)
			}
			if want := tt.reason == networkingv1beta1.ReasonNetworkCIDRsConfigured; p.Ready != want {
				t.Errorf("ready: %v", p.Ready)
			}
			if diff := cmp.Diff(tt.apply, namesOf(p.Apply)); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.remove, namesOf(p.Delete)); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(cluster(t, tt.remote), p.Remote); diff != "" {
				t.Errorf("status.remote (-want +got):\n%s", diff)
			}
		})
	}
}

func namesOf(ns []*ipamv1alpha1.Network) (names []string) {
	for _, n := range ns {
		names = append(names, n.Name)
	}
	return names
}

func TestBuildNetwork(t *testing.T) {
	p := Build(Facts{Configuration: configuration(t, local+"remote: {cidr: {pod: 10.243.0.0/16}}")})
	want := owned("c-pod-10-243-0-0-16", "10.243.0.0/16", "", "", "")
	want.Labels = map[string]string{"liqo.io/managed": "true", "liqo.io/remote-cluster-id": "peer", "configuration.liqo.io/cidr-type": "pod"}
	if diff := cmp.Diff([]*ipamv1alpha1.Network{want}, p.Apply); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBuildLocal(t *testing.T) {
	pod, pod6 := installed("pod-cidr-1", ipamv1alpha1.NetworkTypePodCIDR, "10.42.0.0/16"), installed("pod-cidr-2", ipamv1alpha1.NetworkTypePodCIDR, "fd00:42::/56")
	external, service := installed("external-cidr", ipamv1alpha1.NetworkTypeExternalCIDR, "10.70.0.0/16"), installed("service-cidr", ipamv1alpha1.NetworkTypeServiceCIDR, "10.96.0.0/12")
	waits := installed("pod-cidr-3", ipamv1alpha1.NetworkTypePodCIDR, "")
	const scalar, list = "remote: {cidr: {pod: 10.1.0.0/16, external: 10.2.0.0/16}}", "remote: {cidr: {pod: [10.1.0.0/16], external: [10.2.0.0/16]}}"
	for _, tt := range []struct {
		name      string
		spec      string
		installed []*ipamv1alpha1.Network
		want      string
		message   string
	}{
		{"scalars", scalar, []*ipamv1alpha1.Network{external, pod, service}, "cidr: {pod: 10.42.0.0/16, external: 10.70.0.0/16}", ""},
		{"lists", list, []*ipamv1alpha1.Network{external, pod, service}, "cidr: {pod: [10.42.0.0/16], external: [10.70.0.0/16]}", ""},
		{"several where the remote has one", scalar, []*ipamv1alpha1.Network{external, pod, pod6}, `cidr: {pod: [10.42.0.0/16, "fd00:42::/56"], external: 10.70.0.0/16}`, ""},
		{"a remote cluster without external CIDR", "remote: {cidr: {pod: 10.1.0.0/16}}", []*ipamv1alpha1.Network{external, pod}, "cidr: {pod: 10.42.0.0/16, external: 10.70.0.0/16}", ""},
		{"an empty one", "local: {cidr: {pod: []}}\n" + scalar, []*ipamv1alpha1.Network{external, pod}, "cidr: {pod: 10.42.0.0/16, external: 10.70.0.0/16}", ""},
		{"nothing installed", scalar, nil, "", "ipam.liqo.io/network-type=pod-cidr"},
		{"no external CIDR installed", scalar, []*ipamv1alpha1.Network{pod}, "", "ipam.liqo.io/network-type=external-cidr"},
		{"one without an answer", scalar, []*ipamv1alpha1.Network{external, pod, waits}, "", "waiting for Network liqo/pod-cidr-3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Build(Facts{Configuration: configuration(t, tt.spec), Installed: tt.installed})
			if diff := cmp.Diff(cluster(t, tt.want), p.Local); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tt.want == "" && (p.Reason != networkingv1beta1.ReasonWaitingForLocalNetworks || !strings.Contains(p.Message, tt.message)) {
				t.Errorf("%s: %s", p.Reason, p.Message)
			}
			if len(p.Apply) > 0 || p.Ready {
				t.Error("something happens before spec.local is known")
			}
		})
	}
}

func TestBuildDuplicates(t *testing.T) {
	other := func(name string, at int64, change func(*networkingv1beta1.Configuration)) networkingv1beta1.Configuration {
		o := *configuration(t, asScalars)
		o.Name, o.UID, o.CreationTimestamp = name, types.UID("u-"+name), metav1.Unix(at, 0)
		if change != nil {
			change(&o)
		}
		return o
	}
	for _, tt := range []struct {
		name  string
		other networkingv1beta1.Configuration
		want  bool // it is the other that is served
	}{
		{"an older one", other("z", 99, nil), true},
		{"a younger one", other("a", 101, nil), false},
		{"one of the same second, before it by name", other("b", 100, nil), true},
		{"one of the same second, after it by name", other("d", 100, nil), false},
		{"an older one that is going", other("z", 99, func(o *networkingv1beta1.Configuration) { o.DeletionTimestamp = new(metav1.Now()) }), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := configuration(t, asScalars)
			p := Build(Facts{Configuration: c, Others: []networkingv1beta1.Configuration{*c, tt.other}})
			if got := p.Reason == networkingv1beta1.ReasonDuplicateConfiguration; got != tt.want {
				t.Errorf("%s: %s", p.Reason, p.Message)
			}
			if tt.want && (len(p.Apply) > 0 || !strings.Contains(p.Message, "Configuration "+tt.other.Name)) {
				t.Errorf("%v: %s", p.Apply, p.Message)
			}
		})
	}
}

func TestBuildInvalid(t *testing.T) {
	for _, tt := range []struct{ name, label, spec, want string }{
		{"no label", "", asScalars, "the label liqo.io/remote-cluster-id is \"\""},
		{"a label that is no ID", "A.b", asScalars, "CLUSTER_ID"},
		{"no pod CIDR", "peer", "remote: {cidr: {external: 10.70.0.0/16}}", "spec.remote.cidr.pod is missing"},
		{"an empty list", "peer", "remote: {cidr: {pod: []}}", "spec.remote.cidr.pod is missing"},
		{"a bad element", "peer", "remote: {cidr: {pod: [10.0.0.0/16, 10.1/16]}}", `spec.remote.cidr.pod[1]: CIDR "10.1/16"`},
		{"bits behind the length", "peer", "remote: {cidr: {pod: 10.1.2.0/16}}", "spec.remote.cidr.pod: CIDR \"10.1.2.0/16\" has host bits; write 10.1.0.0/16"},
		{"IPv4 in IPv6", "peer", `remote: {cidr: {pod: "::ffff:10.0.0.0/104"}}`, "write the IPv4 prefix in IPv4 form"},
		{"everything", "peer", "remote: {cidr: {pod: 10.1.0.0/16, external: 0.0.0.0/0}}", "spec.remote.cidr.external: CIDR \"0.0.0.0/0\": cannot be routed"},
		{"loopback", "peer", "remote: {cidr: {pod: 127.0.0.0/8}}", "cannot be routed"},
		{"link-local", "peer", `remote: {cidr: {pod: "fe80::/64"}}`, "cannot be routed"},
		{"multicast", "peer", "remote: {cidr: {pod: 224.0.0.0/8}}", "cannot be routed"},
		{"a prefix twice", "peer", "remote: {cidr: {pod: [10.1.0.0/16, 10.1.0.0/16]}}", "spec.remote.cidr.pod[1]: 10.1.0.0/16 overlaps 10.1.0.0/16 of spec.remote.cidr.pod[0]"},
		{"pods among external addresses", "peer", "remote: {cidr: {pod: 10.1.0.0/16, external: 10.0.0.0/8}}", "spec.remote.cidr.external: 10.0.0.0/8 overlaps 10.1.0.0/16 of spec.remote.cidr.pod"},
		{"a bad local CIDR", "peer", "local: {cidr: {pod: x}}\nremote: {cidr: {pod: 10.1.0.0/16}}", "spec.local.cidr.pod: "},
		{"no local pod CIDR", "peer", "local: {cidr: {external: 10.70.0.0/16}}\nremote: {cidr: {pod: 10.1.0.0/16}}", "spec.local.cidr.pod is missing"},
		{"local prefixes that overlap", "peer", "local: {cidr: {pod: 10.70.1.0/24, external: 10.70.0.0/16}}\nremote: {cidr: {pod: 10.1.0.0/16}}", "spec.local.cidr.external: 10.70.0.0/16 overlaps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := configuration(t, tt.spec)
			c.Labels[networkingv1beta1.LabelRemoteClusterID] = tt.label
			p := Build(Facts{Configuration: c, Networks: []*ipamv1alpha1.Network{owned("c-pod-1", "10.9.0.0/16", "10.9.0.0/16", "", "")}})
			if p.Reason != networkingv1beta1.ReasonInvalidConfiguration || !strings.Contains(p.Message, tt.want) {
				t.Errorf("%s: %s", p.Reason, p.Message)
			}
			if len(p.Apply) > 0 || len(p.Delete) > 0 || p.Local != nil {
				t.Error("something changes although the Configuration is wrong")
			}
		})
	}
}

func TestNetworkName(t *testing.T) {
	long := strings.Repeat("a", 240)
	for _, tt := range []struct{ configuration, cidr, want string }{
		{"dry-paper", "10.243.0.0/16", "dry-paper-pod-10-243-0-0-16"},
		{"c", "fd00:10::/64", "c-pod-fd00-10---64"},
	} {
		if got := networkName(tt.configuration, "pod", tt.cidr); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	a, b := networkName(long, "pod", "10.243.0.0/16"), networkName(long, "pod", "10.243.0.0/17")
	if len(a) > maxName || len(b) > maxName || a == b {
		t.Errorf("%s and %s", a, b)
	}
}
