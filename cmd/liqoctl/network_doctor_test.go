package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
	"github.com/sluice-net/sluice/test/golden"
)

// doctorReport is what a doctor found in two clusters, or in the local one.
func doctorReport(clusters int) *doctor.Report {
	r := &doctor.Report{
		Version: "v1.4.0", Time: someTime,
		Clusters: []doctor.Examined{
			{Name: "local", ClusterID: "rome", APIServer: "https://rome.example.org:6443", Origin: "kubeconfig rome.yaml"},
			{Name: "remote", ClusterID: "milan", APIServer: "https://milan.example.org:6443", Origin: "kubeconfig milan.yaml"},
		},
		Findings: []doctor.Finding{
			{Check: "api-access", Cluster: "local", Status: doctor.OK, Message: "https://rome.example.org:6443 answers"},
			{Check: "api-access", Cluster: "remote", Status: doctor.OK, Message: "https://milan.example.org:6443 answers"},
			{Check: "identity", Status: doctor.OK, Message: "rome and milan"},
			{Check: "installation", Cluster: "local", Status: doctor.OK, Message: "liqo-controller 1/1, liqo-fabric 2/2"},
			{Check: "installation", Cluster: "remote", Status: doctor.Warning, Object: "DaemonSet liqo-fabric/liqo-fabric", Message: "1 of 2 pods are ready",
				Cause: "the network of the other nodes does not follow changes any more", Fix: "see 'kubectl -n liqo-fabric describe pods'"},
			{Check: "keys", Cluster: "local", Peer: "milan", Status: doctor.Failed, Object: "PublicKey liqo-tenant-milan/milan",
				Message: "it holds a2V5IG9mIG1p..., but the gateway of milan has b3RoZXIga2V5...",
				Cause:   "the keys of that gateway have changed: its Secret was deleted or replaced; no handshake succeeds, and sessions end after three minutes",
				Fix:     "run 'liqoctl network connect' again, or apply here what 'liqoctl generate publickey --gateway-type client --gateway-name NAME' prints in milan"},
			{Check: "handshake", Peer: "milan", Status: doctor.Skipped, Message: "needs what failed before: keys"},
			{Check: "ping", Peer: "milan", Status: doctor.Skipped, Message: "needs what failed before: keys"},
			{Check: "drops", Cluster: "remote", Peer: "milan", Status: doctor.Skipped, Message: "the gateway cannot be asked: none of its pods is active"},
		},
		Summary: doctor.Summary{OK: 4, Warnings: 1, Failed: 1, Skipped: 3},
	}
	if clusters == 2 {
		return r
	}
	r.Clusters = r.Clusters[:1]
	r.Clusters[0].Name = ""
	var of []doctor.Finding
	for _, f := range r.Findings {
		if f.Cluster != "remote" {
			f.Cluster = ""
			of = append(of, f)
		}
	}
	r.Findings, r.Summary = of, doctor.Summary{OK: 3, Failed: 1, Skipped: 2}
	return r
}

func wellReport() *doctor.Report {
	r := doctorReport(2)
	r.Findings, r.Summary = r.Findings[:4], doctor.Summary{OK: 4}
	return r
}

func TestDoctorPages(t *testing.T) {
	for name, tt := range map[string]struct {
		report  *doctor.Report
		verbose bool
	}{
		"two-clusters": {doctorReport(2), false},
		"one-cluster":  {doctorReport(1), false},
		"verbose":      {doctorReport(2), true},
		"well":         {wellReport(), false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := console.New(strings.NewReader(""), &out, &out)
			c.Show(doctorPage(tt.report, tt.verbose))
			golden.Compare(t, "testdata/"+filepath.Join("doctor", name+".txt"), out.String())
		})
	}
}

func TestDoctorOutput(t *testing.T) {
	text, err := json.MarshalIndent(doctorReport(2), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/doctor/report.json", string(text)+"\n")
}

// A kubeconfig of no use is a finding, not the end of it.
func TestDoctorWithoutClusters(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	got := liqoctl(t.Context(), "network", "doctor", "--kubeconfig", missing, "--remote-kubeconfig", missing+"-too", "-o", "yaml")
	var r doctor.Report
	if err := yaml.UnmarshalStrict([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v:\n%s", err, got.stdout)
	}
	var failed []string
	for _, f := range r.Findings {
		if f.Status == doctor.Failed {
			failed = append(failed, f.Check+" "+f.Cluster)
			if f.Check == "api-access" && (!strings.Contains(f.Cause, "cannot be read") || !strings.Contains(f.Cause, "kubeconfig") || f.Fix == "") {
				t.Errorf("%+v", f)
			}
		}
	}
	if diff := cmp.Diff([]string{"api-access local", "api-access remote"}, failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if got.code != 1 || !strings.Contains(got.stderr, "2 problems found") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}
