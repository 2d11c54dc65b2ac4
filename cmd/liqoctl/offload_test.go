package main

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/golden"
)

// TestOffloadPrints: with -o the manifests are printed, and no cluster is asked.
func TestOffloadPrints(t *testing.T) {
	for name, args := range map[string]string{
		"offload.yaml":          "offload namespace shop -o yaml",
		"offload-selected.yaml": "offload ns shop bank --pod-offloading-strategy Remote --namespace-mapping-strategy SelectedName --remote-namespace-name guest -l region=eu,gpu -l region=us -o yaml",
		"virtualnode.yaml": "create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name key --cpu 8 --resource nvidia.com/gpu=2 --storage-classes fast,slow --labels region=eu " +
			"--node-selector pool=guests --runtime-class-name kata --vk-options-template liqo/mine --disable-network-check -o yaml",
		"resourceslice.yaml":              "create resourceslice milan --remote-cluster-id milan --cpu 8 -o yaml",
		"resourceslice-without-node.yaml": "create resourceslice milan --remote-cluster-id milan --no-virtual-node -o yaml",
	} {
		got := liqoctl(t.Context(), append(strings.Fields(args), "--kubeconfig", "nowhere")...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("%s: %+v", args, got)
		}
		golden.Compare(t, "testdata/manifests/"+name, got.stdout)
	}
}

func TestOffloadMistakes(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"offload namespace", "expected one or more NAMEs of namespaces, or --ns-selector"},
		{"offload namespace shop --ns-selector a=b", "expected either names of namespaces or --ns-selector, not both"},
		{"offload namespace shop --pod-offloading-strategy Everywhere", `--pod-offloading-strategy "Everywhere": must be LocalAndRemote, Local or Remote`},
		{"offload namespace shop --namespace-mapping-strategy Any", `--namespace-mapping-strategy "Any": must be DefaultName, EnforceSameName or SelectedName`},
		{"offload namespace shop --remote-namespace-name guest", "--remote-namespace-name and --namespace-mapping-strategy SelectedName must be used together"},
		{"offload namespace shop --namespace-mapping-strategy SelectedName", "--remote-namespace-name and --namespace-mapping-strategy SelectedName must be used together"},
		{"offload namespace shop kube-system -o yaml", "namespace kube-system is never offloaded"},
		{"offload namespace inst --liqo-namespace inst -o yaml", "namespace inst is never offloaded"},
		{"offload namespace shop -l a==b==c", `--selector "a==b==c": `},
		{"unoffload namespace", "expected one or more NAMEs of namespaces, or --ns-selector"},
		{"create virtualnode milan --remote-cluster-id milan", "at least one of the flags in the group [kubeconfig-secret-name resource-slice-name] is required"},
		{"create virtualnode milan --remote-cluster-id milan --resource-slice-name a --cpu 4", "if any flags in the group [resource-slice-name cpu] are set none of the others can be"},
		{"create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name a --vk-options-template b", `--vk-options-template "b": must be NAMESPACE/NAME`},
		{"create virtualnode milan --remote-cluster-id milan --resource-slice-name a -o yaml", "-o: only the cluster knows what a ResourceSlice was granted"},
		{"delete virtualnode", "expected one NAME for the object, got 0"},
	} {
		got := liqoctl(t.Context(), append(strings.Fields(tt.args), "--kubeconfig", "nowhere")...)
		if got.code != 1 || !strings.Contains(got.stderr, " ERRO   "+tt.want) || got.stdout != "" {
			t.Errorf("%s: %+v; want %q", tt.args, got, tt.want)
		}
	}
}
