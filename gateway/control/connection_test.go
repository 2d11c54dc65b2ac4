package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

var testGateway = Gateway{
	Type: networkingv1beta1.ConnectionServer, Kind: "GatewayServer", Namespace: "tenant", Name: "server", ClusterID: "milan",
}

func statusOf(value networkingv1beta1.ConnectionValue, latency string, at time.Time) networkingv1beta1.ConnectionStatus {
	return networkingv1beta1.ConnectionStatus{
		Value:   value,
		Latency: networkingv1beta1.ConnectionLatency{Value: latency, Timestamp: metav1.NewTime(at)},
	}
}

func TestConnectionFile(t *testing.T) {
	start := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	dir := t.TempDir()
	f := connectionFile{dir: dir}
	steps := []struct {
		name    string
		after   time.Duration // since start
		gateway Gateway
		value   networkingv1beta1.ConnectionValue
		latency string
		writes  bool
	}{
		{"the first state", 0, testGateway, networkingv1beta1.Connecting, "N/A", true},
		{"nothing new", time.Second, testGateway, networkingv1beta1.Connecting, "N/A", false},
		{"another value, at once", 1100 * time.Millisecond, testGateway, networkingv1beta1.Connected, "N/A", true},
		{"the first latency, at once", 2 * time.Second, testGateway, networkingv1beta1.Connected, "12ms", true},
		{"another latency, not yet", 3 * time.Second, testGateway, networkingv1beta1.Connected, "13ms", false},
		{"still not", 12*time.Second - 1, testGateway, networkingv1beta1.Connected, "14ms", false},
		{"ten seconds later", 12 * time.Second, testGateway, networkingv1beta1.Connected, "15ms", true},
		{"and from there again", 21 * time.Second, testGateway, networkingv1beta1.Connected, "16ms", false},
		{"the peer is lost", 21500 * time.Millisecond, testGateway, networkingv1beta1.ConnectionError, "N/A", true},
		{"another gateway", 22 * time.Second, Gateway{Type: networkingv1beta1.ConnectionClient, Kind: "GatewayClient", Name: "c", ClusterID: "rome"}, networkingv1beta1.ConnectionError, "N/A", true},
	}
	for _, s := range steps {
		now := start.Add(s.after)
		wrote, err := f.update(ConnectionOf(s.gateway, statusOf(s.value, s.latency, now)), now)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if wrote != s.writes {
			t.Errorf("%s: wrote is %v, want %v", s.name, wrote, s.writes)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, manifests.StatusDir))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want the Connection alone", entries, err)
	}
}

func TestConnectionFileContent(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	dir := t.TempDir()
	path := filepath.Join(dir, manifests.StatusDir, manifests.ConnectionFile)
	write := func(at time.Time) string {
		t.Helper()
		f := connectionFile{dir: dir}
		if _, err := f.update(ConnectionOf(testGateway, statusOf(networkingv1beta1.Connected, "850μs", at)), at); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const want = `apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata:
  creationTimestamp: "2026-03-04T05:06:07Z"
  labels:
    liqo.io/remote-cluster-id: milan
  name: gw-server
  namespace: tenant
spec:
  gatewayRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: GatewayServer
    name: server
    namespace: tenant
  type: Server
status:
  latency:
    timestamp: "2026-03-04T05:06:07Z"
    value: 850μs
  value: Connected
`
	if diff := cmp.Diff(want, write(now)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}

	// A restart keeps the age and nothing else.
	var c networkingv1beta1.Connection
	if err := yaml.UnmarshalStrict([]byte(write(now.Add(time.Hour))), &c); err != nil {
		t.Fatal(err)
	}
	if !c.CreationTimestamp.Time.Equal(now) {
		t.Errorf("created %v, want %v", c.CreationTimestamp, now)
	}
	if at := c.Status.Latency.Timestamp.Time; !at.Equal(now.Add(time.Hour)) {
		t.Errorf("latency of %v, want an hour later", at)
	}

	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(now) // an old file that is no Connection is replaced
}

func TestConnectionFileTriesAgain(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, manifests.StatusDir)
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f := connectionFile{dir: dir}
	c := ConnectionOf(testGateway, statusOf(networkingv1beta1.Connecting, "N/A", now))
	if wrote, err := f.update(c, now); wrote || err == nil {
		t.Fatalf("got %v, %v, want an error", wrote, err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if wrote, err := f.update(c, now.Add(time.Second)); !wrote || err != nil {
		t.Errorf("got %v, %v, want it written at the next step", wrote, err)
	}
}

// A manifests directory that was removed does not come back empty.
func TestConnectionFileMakesNoManifestsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	f := connectionFile{dir: dir}
	_, err := f.update(ConnectionOf(Gateway{Name: "server"}, networkingv1beta1.ConnectionStatus{}), time.Now())
	if err == nil || !strings.Contains(err.Error(), "the manifests directory "+dir+" is gone") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}
