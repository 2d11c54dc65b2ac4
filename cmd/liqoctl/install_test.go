package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestInstallMistakes: what install does not do is said before a cluster is
// asked anything.
func TestInstallMistakes(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"install minikube", `"minikube" is no known kind of cluster: use one of kubeadm, kind, k3s, aks, eks, gke, openshift; see 'liqoctl install --help'`},
		{"install --pod-cidr 10.0.0.0", `--pod-cidr: "10.0.0.0" is not a CIDR, such as 10.243.0.0/16`},
		{"install --pod-cidr 10.1.2.3/16", `--pod-cidr: 10.1.2.3/16 has host bits: use 10.1.0.0/16`},
		{"install --service-cidr 10.96.0.1/12", `--service-cidr: 10.96.0.1/12 has host bits: use 10.96.0.0/12`},
		{"install --reserved-subnets 10.243.0.0/15", `--reserved-subnets: 10.243.0.0/15 has host bits: use 10.242.0.0/15`},
		{"install --repo-url https://x", "--repo-url: the chart is in this program; --local-chart-path takes another one"},
		{"install --values none.yaml", "--values: open none.yaml: no such file or directory"},
	} {
		got := liqoctl(t.Context(), strings.Fields(tt.args)...)
		if got.code != 1 || got.stderr != " ERRO   "+tt.want+"\n" {
			t.Errorf("%s: %+v, want %s", tt.args, got, tt.want)
		}
	}
	got := liqoctl(t.Context(), "install", "--version", "v9.9.9")
	if got.code != 1 || !strings.Contains(got.stderr, "use liqoctl v9.9.9, or set the tag of the images with --set tag=v9.9.9") {
		t.Errorf("%+v", got)
	}
}

// TestInstallWithoutChanges: what can be seen before an installation.
func TestInstallWithoutChanges(t *testing.T) {
	c := controlplanetest.StartBare(t)
	run := func(args ...string) result {
		return liqoctl(t.Context(), append(args, "--kubeconfig", c.Kubeconfig)...)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	install := []string{"install", "--cluster-id", "rome", "--pod-cidr", "10.243.0.0/16", "--cluster-labels", "region=eu"}
	for _, tt := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // regular expressions
	}{
		{"what is missing", []string{"install"}, 1, `^$`, `^ ERRO   nothing was changed: nothing in the cluster shows its pod CIDR: set --pod-cidr\n$`},
		{"manifests", append(install, "--dry-run"), 0, `(?s)^---\n# Everything.*kind: Namespace.*--cluster-id=rome`,
			`^ INFO   Cluster ID: rome \(as given\)\n INFO   Pods: 10.243.0.0/16 \(as given\)\n INFO   Services: 10.96.0.0/16 \(the ServiceCIDRs of the API server\)\n WARN   this program was built without a version and installs images with the tag unknown: to use others, add --set tag=TAG\n$`},
		{"with CRDs", append(install, "--dry-run", "--include-crds"), 0, `(?s)^---\napiVersion: apiextensions.k8s.io/v1.*kind: Namespace`, `INFO`},
		{"values", append(install, "--only-output-values", "--dump-values-path", "-"), 0, `(?s)^discovery:\n  config:\n    clusterID: rome\n    clusterLabels:\n      region: eu\nipam:\n  podCIDR: 10.243.0.0/16\n.*`, `INFO`},
		{"values in a file", append(install, "--only-output-values", "--dump-values-path", values), 0, `^$`, `INFO   Values written to `},
		{"values from it", []string{"install", "--values", values, "--dry-run"}, 0, `--pod-cidr=10.243.0.0/16`, `Pods: 10.243.0.0/16 \(from the values\)`},
		{"a misspelt value", append(install, "--set", "networking.genevePorts=1"), 1, `^$`, `(?s) ERRO   nothing was changed: the chart has no value networking.genevePorts: did you mean networking.genevePort\?\n.*lists all values`},
		{"flags that do nothing", append(install, "--dry-run", "--disable-telemetry", "--disable-api-server-sanity-check"), 0, `kind`,
			`(?s) WARN   --disable-api-server-sanity-check does nothing: the address of the API server is not compared with that of the kubeconfig\n WARN   --disable-telemetry does nothing: nothing is sent anywhere\n`},
		{"an address of the API server", append(install, "--dry-run", "--set", "authentication.enabled=true", "--api-server-url", "https://203.0.113.7:6443"), 0, `--api-server-url=https://203.0.113.7:6443\n`, `INFO`},
		{"none", append(install, "--dry-run", "--api-server-url", "203.0.113.7"), 1, `^$`, `^ ERRO   --api-server-url: "203.0.113.7" is not an https URL, such as https://203.0.113.7:6443\n$`},
		{"two of them", append(install, "--dry-run", "--set", "apiServer.address=https://a", "--api-server-url", "https://b"), 1, `^$`, `--api-server-url https://b contradicts the value apiServer.address https://a: drop one of them\n`},
		{"nothing to uninstall", []string{"uninstall", "--purge"}, 0, `^$`, `^ INFO   Nothing is installed, so there is nothing to remove\n$`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(tt.args...)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
			if !regexp.MustCompile(tt.stdout).MatchString(got.stdout) {
				t.Errorf("stdout is not %s:\n%.1000s", tt.stdout, got.stdout)
			}
			if !regexp.MustCompile(tt.stderr).MatchString(got.stderr) {
				t.Errorf("stderr is not %s:\n%s", tt.stderr, got.stderr)
			}
		})
	}
	if info, err := os.Stat(values); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := c.Kubectl("get", "namespace", "liqo"); err == nil {
		t.Error("there is a namespace")
	}
}
