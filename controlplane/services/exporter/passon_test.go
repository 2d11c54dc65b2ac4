package exporter

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// of is a slice of a peer, as this cluster reaches it.
func of(cluster, name string, addresses ...string) discoveryv1.EndpointSlice {
	s := slice(name, addresses...)
	s.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster}
	return s
}

// granted is the IP of an endpoint of a peer.
func granted(here, external string) ipamv1alpha1.IP {
	ip := ipamv1alpha1.IP{Spec: ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(here)}, Status: ipamv1alpha1.IPStatus{IP: ipamv1alpha1.Address(external)}}
	if external == "" {
		ip.Status.Conditions = []metav1.Condition{{Type: string(ipamv1alpha1.ConditionAllocated), Status: "False", Reason: "Exhausted", Message: "10.70.0.0/30 has no free address"}}
	}
	return ip
}

// hub are the facts of a cluster that imports shop/web from rome, and is connected to milan as well.
func hub() Facts {
	f := facts()
	f.Service, f.Slices = nil, nil
	f.PassOn = PassOn{
		Import: &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
			Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}},
		},
		Slices: []discoveryv1.EndpointSlice{of("rome", "a", "10.71.1.2")}, IPs: []ipamv1alpha1.IP{granted("10.71.1.2", "10.70.0.5")},
	}
	return f
}

func TestPassOn(t *testing.T) {
	for _, test := range []struct {
		name                  string
		change                func(*Facts)
		want                  []string // peer, cluster of the endpoint where it is another one, address
		ips                   int
		valid, reason, saying string
	}{
		{"of one leaf to the other, not back", func(*Facts) {}, []string{"milan rome 10.70.0.5"}, 1, "True", "Exported", "Exported to milan; Endpoints of rome are passed on"},
		{"beside endpoints of its own", func(f *Facts) { f.Service, f.Slices = facts().Service, facts().Slices[:1] },
			[]string{"milan  10.243.0.2", "milan rome 10.70.0.5", "rome  10.243.0.2"}, 1, "True", "Exported", "Exported to milan, rome"},
		{"of both, crosswise", func(f *Facts) {
			f.PassOn.Slices = append(f.PassOn.Slices, of("milan", "b", "10.72.1.2"))
			f.PassOn.IPs = append(f.PassOn.IPs, granted("10.72.1.2", "10.70.0.6"))
		}, []string{"milan rome 10.70.0.5", "rome milan 10.70.0.6"}, 2, "True", "Exported", "Endpoints of milan, rome are passed on"},
		{"no address yet", func(f *Facts) { f.PassOn.IPs = nil }, nil, 1, "True", "Exported", "10.71.1.2 of cluster rome has no address for other clusters yet"},
		{"no address left", func(f *Facts) { f.PassOn.IPs[0] = granted("10.71.1.2", "") }, nil, 1, "True", "Exported", "has no address for other clusters yet: 10.70.0.0/30 has no free address"},
		{"as many as there can be", func(f *Facts) {
			f.PassOn.Others = map[string]int{"rome": networkingv1beta1.MaxPassedOn}
		}, nil, 0, "True", "Exported", "10.71.1.2 of cluster rome is not passed on: 1000 endpoints"},
		{"the operator does not want it", func(f *Facts) { f.PassOn.Slices, f.PassOn.Withheld = nil, []string{"rome"} }, nil, 0, "False", "NoService",
			"imported from rome, and not passed on: the annotation liqo.io/pass-on-services"},
		{"the other leaf may not see it", func(f *Facts) { f.Peers[0].Denied = true }, nil, 1, "True", "Pending", "Not to milan"},
		{"no other leaf", func(f *Facts) { f.Peers = f.Peers[1:] }, nil, 1, "True", "Pending", "no other one than the one that exports it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := hub()
			test.change(&f)
			p := Build(f)
			var got []string
			for _, e := range p.Exported {
				if err := e.Spec.Check(); err != nil {
					t.Error(err)
				}
				for _, s := range e.Spec.Slices {
					for _, a := range s.Endpoints {
						got = append(got, strings.Join([]string{e.Labels["liqo.io/remote-cluster-id"], s.Cluster, a.Addresses[0]}, " "))
					}
				}
			}
			if !slices.Equal(got, test.want) || len(p.IPs) != test.ips {
				t.Errorf("%q and %d IPs, want %q and %d", got, len(p.IPs), test.want, test.ips)
			}
			c := meta.FindStatusCondition(p.Conditions, "Valid")
			if string(c.Status) != test.valid {
				t.Errorf("%+v", p.Conditions)
			}
			if test.valid == "True" {
				c = meta.FindStatusCondition(p.Conditions, "Ready")
			}
			if c.Reason != test.reason || !strings.Contains(c.Message, test.saying) {
				t.Errorf("%s: %s, want %s: %s", c.Reason, c.Message, test.reason, test.saying)
			}
		})
	}
}

func TestPassedOnIP(t *testing.T) {
	ip := Build(hub()).IPs[0]
	want := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: ip.Name,
			Labels: map[string]string{"liqo.io/managed": "true", "multicluster.kubernetes.io/service-name": "web", "liqo.io/passed-on-from": "rome"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport", Name: "web", UID: "1", Controller: new(true),
			}},
		},
		Spec: ipamv1alpha1.IPSpec{IP: "10.71.1.2"},
	}
	if diff := cmp.Diff(want, ip); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
