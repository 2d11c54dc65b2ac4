package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/objects/manifests"
)

// node is an InternalNode of some age.
func node(name, version string, age time.Duration) *networkingv1beta1.InternalNode {
	return &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: version, CreationTimestamp: metav1.NewTime(noon.Add(-age)),
		Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
}

func TestSelection(t *testing.T) {
	labels := func(pairs ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Labels: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			m.Labels["networking.liqo.io/"+pairs[i]] = pairs[i+1]
		}
		return m
	}
	for _, tt := range []struct {
		meta metav1.ObjectMeta
		want bool
	}{
		{labels("route-subcategory", "fabric"), true},
		{labels(), true},
		{labels("route-unique", "milan"), true},
		{labels("route-unique", "rome"), false},
		{labels("route-subcategory", "fabric-node", "route-unique", "worker-1"), false},
	} {
		if got := routesForUs(&networkingv1beta1.RouteConfiguration{ObjectMeta: tt.meta}, "milan"); got != tt.want {
			t.Errorf("routes with %v: %v", tt.meta.Labels, got)
		}
	}
	for _, tt := range []struct {
		meta metav1.ObjectMeta
		want bool
	}{
		{labels("firewall-subcategory", "all-gateways"), true},
		{labels("firewall-unique", "milan"), true},
		{labels("firewall-unique", "rome"), false},
		{labels("firewall-subcategory", "ip-mapping"), false},
		{labels(), true}, // to tell its author
	} {
		if got := firewallForUs(&networkingv1beta1.FirewallConfiguration{ObjectMeta: tt.meta}, "milan"); got != tt.want {
			t.Errorf("firewall with %v: %v", tt.meta.Labels, got)
		}
	}
}

// TestWatches: what a gateway goes by is in its own namespace and for its peer, but for the nodes, routes and filters of
// all gateways, and for the IPs, which are those of every namespace.
func TestWatches(t *testing.T) {
	want := []string{
		"ipam.liqo.io/v1alpha1/ips ",
		"networking.liqo.io/v1beta1/internalnodes ",
		"networking.liqo.io/v1beta1/namespaces/liqo/firewallconfigurations networking.liqo.io/firewall-category=gateway",
		"networking.liqo.io/v1beta1/namespaces/liqo/routeconfigurations networking.liqo.io/route-category=gateway",
		"networking.liqo.io/v1beta1/namespaces/tenant/configurations liqo.io/remote-cluster-id=milan",
		"networking.liqo.io/v1beta1/namespaces/tenant/firewallconfigurations networking.liqo.io/firewall-category!=fabric",
		"networking.liqo.io/v1beta1/namespaces/tenant/gatewayservers metadata.name=gw",
		"networking.liqo.io/v1beta1/namespaces/tenant/genevetunnels ",
		"networking.liqo.io/v1beta1/namespaces/tenant/internalfabrics metadata.name=milan",
		"networking.liqo.io/v1beta1/namespaces/tenant/publickeies liqo.io/remote-cluster-id=milan",
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	asked := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		mu.Lock()
		defer mu.Unlock()
		asked[strings.TrimPrefix(r.URL.Path, "/apis/")+" "+q.Get("labelSelector")+q.Get("fieldSelector")] = true
		if len(asked) >= len(want) {
			cancel()
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	l, err := New(&rest.Config{Host: server.URL}, Options{
		Name: "gw", Namespace: "tenant", Type: networkingv1beta1.ConnectionServer, ClusterID: "milan", LiqoNamespace: "liqo",
		KeysDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.mirror.Run(ctx, func() {})
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(asked))); diff != "" {
		t.Errorf("asks for (-want +got):\n%s", diff)
	}
}

// put writes a version of a Secret as a kubelet does.
func put(t *testing.T, dir, version, private, public string) {
	t.Helper()
	next := filepath.Join(dir, "..tmp")
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, version), 0o700),
		os.WriteFile(filepath.Join(dir, version, networkingv1beta1.PrivateKeyEntry), []byte(private), 0o600),
		os.WriteFile(filepath.Join(dir, version, networkingv1beta1.PublicKeyEntry), []byte(public), 0o600),
		os.Symlink(version, next), os.Rename(next, filepath.Join(dir, "..data")),
	)
	if err != nil {
		t.Fatal(err)
	}
}

func TestKeyFolder(t *testing.T) {
	k := keyFolder{dir: t.TempDir()}
	step := func(what string, wantChanged bool, wantPrivate, wantWarning string) {
		t.Helper()
		if got := k.load(); got != wantChanged {
			t.Errorf("%s: changed is %v", what, got)
		}
		secrets, warnings := k.get()
		private := ""
		if len(secrets) == 1 {
			private = string(secrets[0].Object.Data[networkingv1beta1.PrivateKeyEntry])
		}
		if private != wantPrivate || !strings.Contains(warnings.Error(), wantWarning) || wantWarning == "" && len(warnings) > 0 {
			t.Errorf("%s: private key %q, warnings %v", what, private, warnings)
		}
	}
	step("nothing there", true, "", "cannot read the keys: ")
	step("still nothing", false, "", "cannot read the keys: ")
	put(t, k.dir, "..1", "one", "eno")
	step("the first keys", true, "one", "")
	step("nothing new", false, "one", "")
	put(t, k.dir, "..2", "two", "owt")
	step("new keys", true, "two", "")
	if err := os.Rename(filepath.Join(k.dir, "..data"), filepath.Join(k.dir, "away")); err != nil {
		t.Fatal(err)
	}
	step("the files are gone, the keys stay", true, "two", "cannot read the keys: ")
	if err := os.WriteFile(filepath.Join(k.dir, networkingv1beta1.PrivateKeyEntry), []byte("plain"), 0o600); err != nil {
		t.Fatal(err)
	}
	step("a folder without links", true, "plain", "")
	if err := os.WriteFile(filepath.Join(k.dir, networkingv1beta1.PrivateKeyEntry), make([]byte, maxKeyFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	step("something else", true, "plain", "is too long for a key")
}

// Until every list is there nothing is built: what is missing would look deleted.
func TestReadWaits(t *testing.T) {
	l, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{
		Name: "gw", Namespace: "tenant", Type: networkingv1beta1.ConnectionServer, ClusterID: "milan", LiqoNamespace: "liqo",
		KeysDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func() (control.Reading, error) { return l.Read(manifests.Digest{}) }
	var waiting manifests.Waiting
	if r, err := read(); !errors.As(err, &waiting) || err.Error() != "reading the objects of the cluster" || r.Digest != (manifests.Digest{}) {
		t.Errorf("before the lists: %v", err)
	}
	l.mirror.Contact().Note("ips", errors.New("connection refused"))
	if _, err := read(); !errors.As(err, &waiting) || err.Error() != "cannot read from the API server yet: connection refused" {
		t.Errorf("without an API server: %v", err)
	}
	for _, s := range []interface{ Replace([]any, string) error }{
		l.servers, l.configs, l.publicKeys, l.fabrics, l.nodes, l.tunnels, l.routes, l.ips, l.firewalls[0], l.firewalls[1],
	} {
		if _, err := read(); !errors.As(err, &waiting) {
			t.Fatalf("without all lists: %v", err)
		}
		if err := s.Replace(nil, "1"); err != nil {
			t.Fatal(err)
		}
	}
	// What was there is no reason to wait when it is away later.
	r, err := read()
	if err != nil || r.Digest == (manifests.Digest{}) || r.Objects.Cluster == nil || !r.Heavy {
		t.Fatalf("%+v, %v", r, err)
	}
	if again, err := l.Read(r.Digest); err != nil || again.Digest != r.Digest || again.Objects.Cluster != nil {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	if err := l.nodes.Add(node("a", "1", 0)); err != nil {
		t.Fatal(err)
	}
	if next, err := l.Read(r.Digest); err != nil || next.Digest == r.Digest || len(next.Objects.InternalNodes) != 1 || next.Heavy {
		t.Errorf("a new object: %+v, %v", next, err)
	}
}
