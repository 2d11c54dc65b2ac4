package main

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/network/gatewaydeploy"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/deploy"
)

func prefixes(text ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, t := range text {
		ps = append(ps, netip.MustParsePrefix(t))
	}
	return ps
}

func TestParseFlags(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	defaults := func() options {
		return options{
			qps: 200, burst: 4000,
			Options: manager.Options{
				LiqoNamespace: "liqo", MetricsAddress: ":8080", HealthProbeAddress: ":8081", Concurrency: 4, Pools: cidr.DefaultPools(),
				Gateways:       gatewaydeploy.Options{NetworkPolicies: true, MetricsNamespace: "monitoring", GenevePort: 6091, DisruptionBudgets: true, Role: "liqo-gateway"},
				LeaderElection: &manager.LeaderElection{LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: 2 * time.Second},
				Bootstrap: bootstrap.Options{
					ExternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
					InternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
				},
			},
		}
	}
	tests := []struct {
		name   string
		args   []string
		env    string
		change func(*options)
	}{
		{"defaults", nil, "", func(*options) {}},
		{"the pod's namespace", nil, "liqo-system", func(o *options) { o.LiqoNamespace = "liqo-system" }},
		{"a flag wins over the environment", []string{"--liqo-namespace=a"}, "b", func(o *options) { o.LiqoNamespace = "a" }},
		{"everything", []string{
			"--kubeconfig=k", "--liqo-namespace=n", "--cluster-id=rome", "--pod-cidr=10.1.0.0/16,fd00:1::/56", "--pod-cidr=10.2.0.0/16", "--service-cidr=10.3.0.0/16",
			"--external-cidr=10.4.0.0/16", "--internal-cidr=10.5.0.0/16", "--reserved-cidr=10.6.0.0/16", "--reserved-cidr=10.7.0.0/16", "--ipam-pools=10.64.0.0/10",
			"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms",
			"--metrics-address=[::1]:1", "--health-probe-address=127.0.0.1:2", "--kube-api-qps=10.5", "--kube-api-burst=20", "--concurrency=8",
			"--log-level=debug", "--log-format=json", "--network-policies=false", "--metrics-namespace=m", "--geneve-port=6092", "--disruption-budgets=false",
			"--foreign-clusters=false", "--gateway-role=sluice-gateway",
		}, "", func(o *options) {
			o.Gateways, o.NoForeignClusters = gatewaydeploy.Options{MetricsNamespace: "m", GenevePort: 6092, Role: "sluice-gateway"}, true
			o.kubeconfig, o.LiqoNamespace, o.qps, o.burst, o.log = "k", "n", 10.5, 20, daemon.Log{Level: slog.LevelDebug, JSON: true}
			o.MetricsAddress, o.HealthProbeAddress, o.Concurrency, o.Pools = "[::1]:1", "127.0.0.1:2", 8, prefixes("10.64.0.0/10")
			o.LeaderElection = &manager.LeaderElection{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second / 2}
			o.Bootstrap = bootstrap.Options{
				ClusterID: "rome", PodCIDRs: prefixes("10.1.0.0/16", "fd00:1::/56", "10.2.0.0/16"), ServiceCIDRs: prefixes("10.3.0.0/16"),
				ExternalCIDR:  bootstrap.Range{Prefix: netip.MustParsePrefix("10.4.0.0/16"), Fixed: true},
				InternalCIDR:  bootstrap.Range{Prefix: netip.MustParsePrefix("10.5.0.0/16"), Fixed: true},
				ReservedCIDRs: prefixes("10.6.0.0/16", "10.7.0.0/16"),
			}
		}},
		{"the default, insisted on", []string{"--external-cidr=10.70.0.0/16"}, "", func(o *options) { o.Bootstrap.ExternalCIDR.Fixed = true }},
		{"offloading", []string{"--authentication", "--offloading", "--pod-security-level=restricted", "--max-namespaces=3", "--namespace-quota=configmaps=10,services.nodeports=0", "--namespace-quota=count/ingresses.networking.k8s.io=7", "--limits-enforcement=Hard", "--no-api-server-access"}, "", func(o *options) {
			o.Authentication = &authentication.Options{Slices: resourceslice.Options{DefaultClass: true, Volumes: true}}
			o.Offloading = &offloading.Options{PodSecurity: "restricted", MaxNamespaces: 3, NamespaceQuota: corev1.ResourceList{
				"configmaps": resource.MustParse("10"), "services.nodeports": resource.MustParse("0"), "count/ingresses.networking.k8s.io": resource.MustParse("7"),
			}, LimitsEnforcement: "Hard", NoAPIServerAccess: true}
		}},
		{"no volumes", []string{"--authentication", "--offloading", "--namespace-quota=persistentvolumeclaims=0"}, "", func(o *options) {
			o.Authentication = &authentication.Options{Slices: resourceslice.Options{DefaultClass: true}}
			o.Offloading = &offloading.Options{PodSecurity: "baseline", MaxNamespaces: 100, NamespaceQuota: corev1.ResourceList{"persistentvolumeclaims": resource.MustParse("0")}, LimitsEnforcement: "None"}
		}},
		{"classes", []string{"--authentication", "--ingress-classes=nginx,traefik;default", "--load-balancer-classes=example.org/public", "--load-balancer-classes=internal"}, "", func(o *options) {
			o.Authentication = &authentication.Options{Slices: resourceslice.Options{
				DefaultClass: true, IngressClasses: []resourceslice.Class{{Name: "nginx"}, {Name: "traefik", Default: true}},
				LoadBalancerClasses: []resourceslice.Class{{Name: "example.org/public"}, {Name: "internal"}},
			}}
		}},
		{"labels of the cluster", []string{"--authentication", "--cluster-labels=region=eu,topology.kubernetes.io/zone=a", "--cluster-labels=tier="}, "", func(o *options) {
			o.Authentication = &authentication.Options{Slices: resourceslice.Options{DefaultClass: true, NodeLabels: map[string]string{
				"region": "eu", "topology.kubernetes.io/zone": "a", "tier": "",
			}}}
		}},
		{"off", []string{"--metrics-address=0", "--health-probe-address=off", "--leader-election=false", "--kube-api-qps=-1"}, "", func(o *options) {
			o.MetricsAddress, o.HealthProbeAddress, o.LeaderElection, o.qps = "", "", nil, -1
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", tt.env)
			got, err := parseFlags(tt.args, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			tt.change(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateComparable(netip.Prefix{}), cmpopts.IgnoreTypes(logr.Logger{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultQuota guards that the chart has the same.
func TestDefaultQuota(t *testing.T) {
	text, err := fs.ReadFile(deploy.Chart(), "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Offloading struct {
			NamespaceQuota corev1.ResourceList `json:"namespaceQuota"`
		} `json:"offloading"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(values.Offloading.NamespaceQuota, defaultQuota()); diff != "" {
		t.Errorf("(-chart +flag)\n%s", diff)
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"--cluster", "unknown flag: --cluster"},
		{"extra", `unexpected argument "extra"`},
		{"--gateway-role=Of/Liqo", `--gateway-role: "Of/Liqo" is not the name of a role`},
		{"--liqo-namespace=Liqo", `--liqo-namespace: "Liqo" is not the name of a namespace`},
		{"--cluster-id=Rome", `--cluster-id: "Rome" must be lower-case letters, digits and dashes, at most 63, with a letter or digit at both ends`},
		{"--pod-cidr=10.0.0.0", `--pod-cidr: "10.0.0.0" is not a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56`},
		{"--pod-cidr=10.1.0.0/16,", `--pod-cidr: "" is not a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56`},
		{"--pod-cidr=10.1.2.3/16", "--pod-cidr: 10.1.2.3/16 has bits set behind its length: write 10.1.0.0/16"},
		{"--reserved-cidr=127.0.0.0/8", "--reserved-cidr: 127.0.0.0/8 overlaps 127.0.0.0/8, which cannot be routed between clusters"},
		{"--external-cidr=x", `--external-cidr: "x" is not a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56`},
		{"--pod-cidr=10.1.0.0/16 --service-cidr=10.1.0.0/24", "--service-cidr 10.1.0.0/24 overlaps --pod-cidr 10.1.0.0/16: an address must belong to one of them"},
		{"--leader-election=perhaps", `--leader-election: "perhaps" is neither true nor false`},
		{"--leader-election-retry-period=2", `--leader-election-retry-period: "2" is not a time, such as 2s or 500ms`},
		{"--leader-election-retry-period=0s", "--leader-election-retry-period must be more than zero"},
		{"--leader-election-renew-deadline=2s", "--leader-election-renew-deadline must be longer than 1.2 times --leader-election-retry-period"},
		{"--leader-election-lease-duration=7s", "--leader-election-lease-duration must be longer than --leader-election-renew-deadline, or two replicas may lead"},
		{"--metrics-address=8080", `--metrics-address: "8080" is not IP:port, such as 127.0.0.1:8080`},
		{"--health-probe-address=localhost:1", `--health-probe-address: "localhost:1" is not IP:port, such as 127.0.0.1:8080`},
		{"--metrics-address=:9 --health-probe-address=127.0.0.1:9", "--metrics-address and --health-probe-address ask for the same TCP port 9"},
		{"--kube-api-qps=many", `--kube-api-qps: "many" is not a number`},
		{"--kube-api-qps=0", "--kube-api-qps: 0 is no request at all; -1 is no limit"},
		{"--kube-api-burst=0", "--kube-api-burst must be at least 1"},
		{"--concurrency=0", "--concurrency: 0 objects at the same time is none"},
		{"--offloading", "--offloading needs --authentication: clusters ask each other for resources first"},
		{"--authentication --offloading --pod-security-level=safe", `--pod-security-level: "safe" is not restricted, baseline or privileged`},
		{"--authentication --offloading --max-namespaces=0", "--max-namespaces: 0 is no namespace at all"},
		{"--namespace-quota=configmaps", `--namespace-quota: "configmaps" is not a resource and its number, such as configmaps=100 or count/ingresses.networking.k8s.io=10`},
		{"--namespace-quota=configmaps=1,secrets=-1", `--namespace-quota: "secrets=-1" is not a resource and its number, such as configmaps=100 or count/ingresses.networking.k8s.io=10`},
		{"--authentication --offloading --limits-enforcement=Firm", `--limits-enforcement: "Firm" is not None, Soft or Hard`},
		{"--authentication --cluster-labels=region", "--cluster-labels: region must be formatted as key=value"},
		{"--ingress-classes=a;b", `--ingress-classes: "a;b" is not the name of a class, such as public, or public;default for the default one`},
		{"--load-balancer-classes=a;default,b;default", `--load-balancer-classes: "b;default" is a second default: there can be one`},
		{"--log-level=loud", `--log-level: "loud" is not debug, info, warn or error`},
		{"--log-format=xml", `--log-format: "xml" is neither text nor json`},
	}
	for _, tt := range tests {
		_, err := parseFlags(strings.Fields(tt.args), nil)
		if !errors.As(err, new(daemon.UsageError)) || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.args, err, tt.want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Error(err)
	}
	daemontest.Golden(t, "help.txt", out.String())
}

func TestRun(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	tests := []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"--version"}, 0, "sluice controller ", ""},
		{[]string{"version"}, 0, "sluice controller ", ""},
		{[]string{"help"}, 0, "controller is the control plane", ""},
		{[]string{"--concurency=1"}, 1, "", "controller: unknown flag: --concurency\nTry 'controller --help'.\n"},
		{nil, 1, "", "controller: no cluster: this is not a pod, and neither --kubeconfig nor KUBECONFIG is set\nTry 'controller --help'.\n"},
		{[]string{"--kubeconfig=missing"}, 1, "", "controller: the kubeconfig cannot be used: stat missing: no such file or directory\n"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), tt.args, &stdout, &stderr); code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			if !strings.HasPrefix(stdout.String(), tt.stdout) || tt.stdout == "" && stdout.Len() > 0 {
				t.Errorf("stdout: got %q, want %q", stdout.String(), tt.stdout)
			}
			if stderr.String() != tt.stderr {
				t.Errorf("stderr: got %q, want %q", stderr.String(), tt.stderr)
			}
		})
	}
}

// TestMetricsCommand: whoever may run commands in the pod can read its metrics.
func TestMetricsCommand(t *testing.T) { daemontest.MetricsCommand(t, run) }
