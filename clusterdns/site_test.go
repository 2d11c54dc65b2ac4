package clusterdns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/services/description"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const siteText = `
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  local: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}
  remote: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}
status:
  remote: {cidr: {pod: REMAPPED, external: 10.72.0.0/16}}
`

// TestSite follows the files of a gateway outside clusters. A peer leads nobody elsewhere than to its own pods.
func TestSite(t *testing.T) {
	dir := t.TempDir()
	configure := func(remapped string) {
		t.Helper()
		path := filepath.Join(dir, "configuration.yaml")
		text := []byte(strings.ReplaceAll(siteText, "REMAPPED", remapped))
		if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(addresses ...string) {
		t.Helper()
		var list networkingv1beta1.ImportedServiceList
		d := networkingv1beta1.ServiceDescription{
			Namespace: "shop", Name: "web", Type: networkingv1beta1.ServiceClusterSetIP, SessionAffinity: "None",
			Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
			Slices: []networkingv1beta1.ServiceSlice{{
				AddressType: "IPv4", Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 8080}},
				Endpoints: []networkingv1beta1.ServiceEndpoint{{Addresses: []string{"10.243.9.9"}}}, // not ready
			}},
		}
		for _, a := range addresses {
			d.Slices[0].Endpoints = append(d.Slices[0].Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
		}
		bad := d
		bad.Namespace = "../shop"
		list.Items = []networkingv1beta1.ImportedService{{Spec: d}, {Spec: bad}}
		if err := manifests.WriteStatus(dir, manifests.ServicesFile, list); err != nil {
			t.Fatal(err)
		}
	}
	configure("10.71.0.0/16")
	site := NewSite(dir, Options{TTL: 5})
	s, address := start(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var made atomic.Int64
	wg.Go(func() {
		site.Run(ctx, func(z *Zone) {
			made.Add(1)
			s.Set(z)
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	r := resolver(address, "udp")
	resolves := func(name, want string) {
		t.Helper()
		controlplanetest.Eventually(t, name+" is "+want, func(ctx context.Context) error {
			ips, err := r.LookupHost(ctx, name+".shop.svc.clusterset.local.")
			slices.Sort(ips)
			if got := fmt.Sprint(ips); err != nil || got != want {
				return fmt.Errorf("%s: %w", got, err)
			}
			return nil
		})
	}
	controlplanetest.Eventually(t, "it says that the gateway has heard nothing", func(context.Context) error {
		if st := site.State(); st.Connected || s.Zone() != nil {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	hear("10.243.1.2", "10.243.1.3", "192.0.2.1", "127.0.0.1", "10.70.0.1", "::ffff:10.243.1.9")
	resolves("web", "[10.71.1.2 10.71.1.3]")
	resolves("10-71-1-3.milan.web", "[10.71.1.3]")
	if _, srv, err := r.LookupSRV(t.Context(), "http", "tcp", "web.shop.svc.clusterset.local."); err != nil || len(srv) != 2 || srv[0].Port != 8080 {
		t.Errorf("SRV: %v, %v", srv, err)
	}
	hear("10.243.1.3")
	resolves("web", "[10.71.1.3]")
	configure("10.73.0.0/16")
	resolves("web", "[10.73.1.3]")
	configure("[") // no YAML: what was read stays
	controlplanetest.Eventually(t, "it says so", func(context.Context) error {
		if site.State().Connected {
			return errors.New("all is well")
		}
		return nil
	})
	resolves("web", "[10.73.1.3]")
	if n := made.Load(); n != 3 {
		t.Errorf("%d zones were made of three states", n)
	}
	if c := s.Zone().Count(); c.Services != 1 {
		t.Errorf("%+v", c)
	}
}

// TestSiteReadsOnce looks again and again at what is the same: nothing is decoded, and no zone is made.
func TestSiteReadsOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	configuration, services := strings.ReplaceAll(siteText, "REMAPPED", "10.71.0.0/16"), "apiVersion: networking.liqo.io/v1beta1\nkind: ImportedServiceList\nitems: []\n"
	made := 0
	f := follower{Site: NewSite(dir, Options{TTL: 5}), set: func(*Zone) { made++ }}
	for _, tt := range []struct {
		name      string
		change    func()
		made      int
		connected bool
	}{
		{"nothing is there", func() {}, 0, false},
		{"a Configuration", func() { write("c.yaml", configuration) }, 0, false},
		{"what the gateway has heard", func() { write("status/services.yaml", services) }, 1, true},
		{"the same, written again", func() { write("status/services.yaml", services) }, 1, true},
		{"another status file", func() { write("status/connection.yaml", "{}") }, 1, true},
		{"other text", func() { write("status/services.yaml", services+"# more\n") }, 2, true},
		{"no YAML", func() { write("status/services.yaml", "[") }, 2, false},
		{"other manifests, too", func() { write("c.yaml", configuration+"# more\n") }, 2, false},
		{"what it was", func() { write("status/services.yaml", services) }, 3, true},
		{"the file is gone", func() { _ = os.Remove(filepath.Join(dir, "status/services.yaml")) }, 3, false},
		{"it is back", func() { write("status/services.yaml", services) }, 4, true},
	} {
		tt.change()
		for range 3 {
			f.update(time.Now())
			if at := f.State(); made != tt.made || at.Connected != tt.connected {
				t.Errorf("%s: %d zones, %+v", tt.name, made, at)
			}
		}
	}
}

// TestSiteLost: while the network of the peering is down, endpoints stay for a while, then go, and come back.
func TestSiteLost(t *testing.T) {
	dir := t.TempDir()
	configuration := strings.ReplaceAll(siteText, "REMAPPED", "10.71.0.0/16")
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	d := networkingv1beta1.ServiceDescription{Namespace: "shop", Name: "web", Type: networkingv1beta1.ServiceHeadless, Slices: []networkingv1beta1.ServiceSlice{
		{AddressType: "IPv4", Endpoints: []networkingv1beta1.ServiceEndpoint{{Addresses: []string{"10.243.1.2"}, Ready: true}}},
	}}
	if err := manifests.WriteStatus(dir, manifests.ServicesFile, networkingv1beta1.ImportedServiceList{Items: []networkingv1beta1.ImportedService{{Spec: d}}}); err != nil {
		t.Fatal(err)
	}
	if hold != description.Hold {
		t.Errorf("%v here, %v in a cluster", hold, description.Hold)
	}
	made, ready := 0, 0
	f := follower{Site: NewSite(dir, Options{TTL: 5}), set: func(z *Zone) { made, ready = made+1, z.Count().Endpoints }}
	start := time.Now()
	for _, tt := range []struct {
		name  string
		after time.Duration
		value networkingv1beta1.ConnectionValue
		made  int
		ready int
		again time.Duration
	}{
		{"the gateway has not said how it is", 0, "", 1, 1, 0},
		{"it is well", 0, networkingv1beta1.Connected, 1, 1, 0},
		{"the network is down", time.Second, networkingv1beta1.ConnectionError, 1, 1, description.Hold},
		{"still", 11 * time.Second, networkingv1beta1.Connecting, 1, 1, description.Hold - 10*time.Second},
		{"for too long", time.Second + description.Hold, networkingv1beta1.ConnectionError, 2, 0, 0},
		{"for an hour", time.Hour, networkingv1beta1.ConnectionError, 2, 0, 0},
		{"it is back", 2 * time.Hour, networkingv1beta1.Connected, 3, 1, 0},
		{"down again", 3 * time.Hour, networkingv1beta1.ConnectionError, 3, 1, description.Hold},
	} {
		c := networkingv1beta1.Connection{Status: networkingv1beta1.ConnectionStatus{Value: tt.value}}
		if err := manifests.WriteStatus(dir, manifests.ConnectionFile, c); err != nil {
			t.Fatal(err)
		}
		if again := f.update(start.Add(tt.after)); made != tt.made || ready != tt.ready || again != tt.again {
			t.Errorf("%s: %d zones, %d endpoints, again in %v; want %d, %d, %v", tt.name, made, ready, again, tt.made, tt.ready, tt.again)
		}
	}
}

// TestHeardOfHub: what a peer passes on of other clusters has addresses of its external CIDR, and their names.
func TestHeardOfHub(t *testing.T) {
	var c networkingv1beta1.Configuration
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(siteText, "REMAPPED", "10.71.0.0/16")), &c); err != nil {
		t.Fatal(err)
	}
	d := networkingv1beta1.ServiceDescription{Namespace: "shop", Name: "db", Type: networkingv1beta1.ServiceHeadless}
	for _, from := range []struct{ cluster, address string }{{"rome", "10.70.0.5"}, {"rome", "10.243.0.5"}, {"milan", "10.70.0.6"}} {
		d.Slices = append(d.Slices, networkingv1beta1.ServiceSlice{
			Cluster: from.cluster, AddressType: "IPv4", Endpoints: []networkingv1beta1.ServiceEndpoint{{Addresses: []string{from.address}, Ready: true}},
		})
	}
	got, err := importedServices([]networkingv1beta1.ImportedService{{Spec: d}}, &c)
	want := []Service{{Namespace: "shop", Name: "db", Headless: true, Endpoints: []Endpoint{{Cluster: "rome", Addresses: addrs("10.72.0.5")}}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
