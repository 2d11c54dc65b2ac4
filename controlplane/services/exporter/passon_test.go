package exporter

import (
	"fmt"
	"net/netip"
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

// of is what a peer says, whose pods of 10.243.0.0/16 are in 10.71.0.0/16 here.
func of(cluster string, addresses ...string) Source {
	in := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 8080}}}
	for _, a := range addresses {
		in.Endpoints = append(in.Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
	}
	return Source{Cluster: cluster, Slices: []networkingv1beta1.ServiceSlice{in}, Address: func(there string, _ discoveryv1.AddressType) (netip.Addr, error) {
		host, inside := strings.CutPrefix(there, "10.243.")
		if !inside {
			return netip.Addr{}, fmt.Errorf("%s is in no CIDR of cluster %s", there, cluster)
		}
		return netip.ParseAddr("10.71." + host)
	}}
}

// many are that many addresses of pods.
func many(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.243.%d.%d", i/250, i%250))
	}
	return all
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
		Sources: []Source{of("rome", "10.243.1.2")}, IPs: []ipamv1alpha1.IP{granted("10.71.1.2", "10.70.0.5")},
	}
	return f
}

func TestPassOn(t *testing.T) {
	var first []string // of those of this cluster, which the test shows the first ten of
	for _, a := range many(10) {
		first = append(first, "milan  "+a)
	}
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
			f.PassOn.Sources = []Source{of("milan", "10.243.2.2"), of("rome", "10.243.1.2")}
			f.PassOn.IPs = append(f.PassOn.IPs, granted("10.71.2.2", "10.70.0.6"))
		}, []string{"milan rome 10.70.0.5", "rome milan 10.70.0.6"}, 2, "True", "Exported", "Endpoints of milan, rome are passed on"},
		{"no endpoint for a moment", func(f *Facts) { f.PassOn.Sources[0].Slices = nil }, []string{"milan"}, 0, "True", "Exported", "Exported to milan"},
		{"away", func(f *Facts) { f.PassOn.Sources[0].Away = true }, []string{"milan rome 10.70.0.5!"}, 1, "True", "Exported", "Exported to milan"},
		{"the address of a node", func(f *Facts) { f.PassOn.Sources[0] = of("rome", "10.0.0.1", "10.243.1.2") }, []string{"milan rome 10.70.0.5"}, 1, "True", "Exported",
			"an endpoint of cluster rome is not passed on: 10.0.0.1 is in no CIDR of cluster rome"},
		{"passed on to this cluster", func(f *Facts) { f.PassOn.Sources[0].Slices[0].Cluster = "naples" }, []string{"milan"}, 0, "True", "Exported", "Exported to milan"},
		{"one address by two ports", func(f *Facts) {
			other := of("rome", "10.243.1.2").Slices[0]
			other.Ports[0].Port = 9090
			f.PassOn.Sources[0].Slices = append(f.PassOn.Sources[0].Slices, other)
			f.PassOn.Others = map[string]int{"rome": networkingv1beta1.MaxPassedOn - 1}
		}, []string{"milan rome 10.70.0.5", "milan rome 10.70.0.5"}, 1, "True", "Exported", "Exported to milan"},
		{"no address yet", func(f *Facts) { f.PassOn.IPs = nil }, []string{"milan"}, 1, "True", "Exported", "10.71.1.2 of cluster rome has no address for other clusters yet"},
		{"no address left", func(f *Facts) { f.PassOn.IPs[0] = granted("10.71.1.2", "") }, []string{"milan"}, 1, "True", "Exported", "has no address for other clusters yet: 10.70.0.0/30 has no free address"},
		{"as many as there can be", func(f *Facts) {
			f.PassOn.Others = map[string]int{"rome": networkingv1beta1.MaxPassedOn}
		}, []string{"milan"}, 0, "True", "Exported", "10.71.1.2 of cluster rome is not passed on: 1000 endpoints"},
		{"more than there can be", func(f *Facts) {
			f.PassOn.Others = map[string]int{"rome": networkingv1beta1.MaxPassedOn + 1}
		}, []string{"milan"}, 0, "True", "Exported", "10.71.1.2 of cluster rome is not passed on: 1000 endpoints"},
		{"beside so many of its own that they do not fit", func(f *Facts) {
			f.Service, f.Slices = facts().Service, []discoveryv1.EndpointSlice{slice("web-a", many(networkingv1beta1.MaxServiceEndpoints)...)}
			f.Peers, f.PassOn.IPs = f.Peers[:1], nil
		}, first, 0, "True", "Exported", "To milan not all of them"},
		{"the operator does not want it", func(f *Facts) { f.PassOn.Sources, f.PassOn.Withheld = nil, []string{"rome"} }, nil, 0, "False", "NoService",
			"imported from rome, and not passed on: the annotation liqo.io/pass-on-services"},
		{"the other leaf may not see it", func(f *Facts) { f.Peers[0].Denied = true }, nil, 0, "True", "Pending", "Not to milan"},
		{"the other leaf is told of enough, with the address that is missing", func(f *Facts) {
			f.PassOn.IPs, f.Peers[0].Endpoints = nil, networkingv1beta1.MaxServiceEndpointsTotal
		}, nil, 0, "True", "Failed", "cluster milan would be offered 20001 endpoints"},
		{"no other leaf", func(f *Facts) { f.Peers = f.Peers[1:] }, nil, 0, "True", "Pending", "no other one than the one that exports it"},
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
				peer := e.Labels["liqo.io/remote-cluster-id"]
				if len(e.Spec.Slices) == 0 {
					got = append(got, peer)
				}
				for _, s := range e.Spec.Slices {
					for _, a := range s.Endpoints[:min(len(s.Endpoints), 10)] {
						mark := ""
						if !a.Ready {
							mark = "!"
						}
						got = append(got, strings.Join([]string{peer, s.Cluster, a.Addresses[0] + mark}, " "))
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
			if (strings.Contains(c.Message, "1000 endpoints of a cluster") || c.Reason == "Failed") != p.Full {
				t.Errorf("looks again: %v, %s", p.Full, c.Message)
			}
			if c.Reason != test.reason || !strings.Contains(c.Message, test.saying) {
				t.Errorf("%s: %s, want %s: %s", c.Reason, c.Message, test.reason, test.saying)
			}
		})
	}
}

// TestTakes: that a peer exports a Service is its word, and what the importer says of it.
func TestTakes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*networkingv1beta1.ImportedService)
		want   bool
	}{
		{"accepted", func(*networkingv1beta1.ImportedService) {}, true},
		{"without endpoints", func(s *networkingv1beta1.ImportedService) { s.Spec.Slices = nil }, true},
		{"beside others", func(s *networkingv1beta1.ImportedService) {
			others := s.Spec.Slices[0]
			others.Cluster = "naples"
			s.Spec.Slices = append(s.Spec.Slices, others)
		}, true},
		{"of others only", func(s *networkingv1beta1.ImportedService) { s.Spec.Slices[0].Cluster = "naples" }, false},
		{"of another peer", func(s *networkingv1beta1.ImportedService) { s.Labels["liqo.io/remote-cluster-id"] = "naples" }, false},
		{"refused", func(s *networkingv1beta1.ImportedService) { s.Status.Conditions[0].Status = "False" }, false},
		{"not judged yet", func(s *networkingv1beta1.ImportedService) { s.Status.Conditions = nil }, false},
		{"no description since it was judged", func(s *networkingv1beta1.ImportedService) { s.Spec.Name = "" }, false},
		{"going", func(s *networkingv1beta1.ImportedService) { s.DeletionTimestamp = new(exportedAt) }, false},
	} {
		s := &networkingv1beta1.ImportedService{
			ObjectMeta: metav1.ObjectMeta{Name: "shop.web", Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"}},
			Spec:       networkingv1beta1.ServiceDescription{Namespace: "shop", Name: "web", Type: "ClusterSetIP", Slices: of("rome", "10.243.1.2").Slices},
			Status:     networkingv1beta1.ImportedServiceStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "True"}}},
		}
		s.Spec.Ports = s.Spec.Slices[0].Ports
		test.change(s)
		if got := takes(s, "rome"); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestMakes: the IPs of a hub are counted past its caches only for one that is to be made.
func TestMakes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Facts)
		want   bool
	}{
		{"one that has its IP", func(*Facts) {}, false},
		{"not ready any more", func(f *Facts) { f.PassOn.Sources[0].Slices[0].Endpoints[0].Ready = false }, false},
		{"an IP without an address", func(f *Facts) { f.PassOn.IPs[0].Status.IP = "" }, false},
		{"another one", func(f *Facts) { f.PassOn.Sources[0] = of("rome", "10.243.1.2", "10.243.1.3") }, true},
		{"no IP", func(f *Facts) { f.PassOn.IPs = nil }, true},
		{"one that gets none", func(f *Facts) { f.PassOn.Sources[0] = of("rome", "10.243.1.2", "192.0.2.1") }, false},
		{"one too many", func(f *Facts) {
			f.PassOn.Sources[0] = of("rome", "10.243.1.2", "10.243.1.3")
			f.PassOn.Others = map[string]int{"rome": networkingv1beta1.MaxPassedOn - 1}
		}, false},
		{"nobody is told", func(f *Facts) {
			f.PassOn.IPs = nil
			for i := range f.Peers {
				f.Peers[i].Denied = true
			}
		}, false},
		{"one of a cluster behind", func(f *Facts) {
			f.PassOn.Sources[0] = of("rome", "10.243.1.3")
			f.PassOn.Sources[0].Slices[0].Cluster = "naples"
		}, false},
	} {
		f := hub()
		test.change(&f)
		p := Build(f)
		if got := p.makes(f.PassOn.IPs); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
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
