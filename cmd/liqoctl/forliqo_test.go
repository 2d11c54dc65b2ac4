package main

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// runLiqo has a cluster look like one in which Liqo runs, until the test ends.
func (r *rome) runLiqo(t *testing.T) {
	t.Helper()
	d := controllerDeployment("ghcr.io/liqotech/liqo-controller-manager:v1.2.0")
	d.SetName("net-controller-manager") // with nameOverride: net
	r.Create(t, d)
	t.Cleanup(func() {
		if err := r.Client.Delete(context.Background(), d); err != nil {
			t.Error(err)
		}
	})
}

// testForLiqo: objects for a cluster in which Liqo runs have CIDRs as lists, and admit its gateways. Whether it runs there the
// user says, or the cluster.
func testForLiqo(t *testing.T, r *rome) {
	lists := strings.NewReplacer("external: 10.70.0.0/16", "external:\n      - 10.70.0.0/16", "pod: 10.243.0.0/16", "pod:\n      - 10.243.0.0/16").Replace(romesNetwork)
	created := []string{"create", "configuration", "turin", "--remote-cluster-id", "turin", "--pod-cidr", "10.243.0.0/16", "--external-cidr", "10.70.0.0/16"}
	printed := func(text string) string {
		return strings.ReplaceAll(strings.Replace(text, "  name: rome\n", "  name: rome\n  namespace: default\n", 1), "rome", "turin")
	}
	r.liqoctl(t, "generate", "configuration", "--for-liqo").want(t, "for a cluster with Liqo", lists, "")
	r.liqoctl(t, append(created, "-o", "yaml")...).want(t, "printed", printed(romesNetwork), "")
	r.liqoctl(t, append(created, "-o", "yaml", "--for-liqo")...).want(t, "printed for a cluster with Liqo", printed(lists), "")

	tenant := []string{"create", "tenant", "--remote-cluster-id", "milan", "--user", "somebody", "-o", "yaml"}
	const restricted = "pod-security.kubernetes.io/enforce: restricted"
	for _, tt := range []struct {
		args []string
		want bool
	}{{tenant, true}, {append(tenant, "--for-liqo"), false}} {
		if got := r.liqoctl(t, tt.args...); got.code != 0 || strings.Contains(got.stdout, restricted) != tt.want {
			t.Errorf("%v: %+v", tt.args, got)
		}
	}

	r.runLiqo(t)
	r.liqoctl(t, "generate", "configuration").want(t, "where Liqo runs", lists, "")
	r.liqoctl(t, "generate", "configuration", "--for-liqo=false").want(t, "where Liqo runs, for a cluster without", romesNetwork, "")
	r.liqoctl(t, created...).want(t, "created where Liqo runs", "", " INFO   Configuration created\n")
	if out, err := r.Kubectl("get", "configuration", "turin", "-o", "jsonpath={.spec.remote.cidr.pod}"); err != nil || out != `["10.243.0.0/16"]` {
		t.Errorf("it has %s, %v", out, err)
	}
	r.liqoctl(t, created...).want(t, "again", "", " INFO   Configuration already exists, as it should be\n")
	if got := r.liqoctl(t, append(created, "--external-cidr", "10.71.0.0/16")...); got.code != 1 || !strings.Contains(got.stderr, "'--for-liqo -o yaml | kubectl apply -f -'") {
		t.Errorf("other CIDRs: %+v", got)
	}
	if _, err := r.Kubectl("delete", "configuration", "turin"); err != nil {
		t.Fatal(err)
	}
}

// testTenantForLiqo: the tenant namespace that is made in a cluster in which Liqo runs admits its gateways. Whether it runs
// there the user says, or the cluster.
func testTenantForLiqo(t *testing.T, r *rome) {
	enforced := func(consumer string, more ...string) string {
		r.must(t, append([]string{"create", "tenant", "--remote-cluster-id", consumer, "--user", "somebody"}, more...)...)
		var space corev1.Namespace
		r.Read(t, "", "liqo-tenant-"+consumer, &space)
		return space.Labels[networkingv1beta1.LabelPodSecurity]
	}
	if without, said := enforced("turin"), enforced("genoa", "--for-liqo"); without != "restricted" || said != "" {
		t.Errorf("PodSecurity levels where Liqo does not run: %q; if the user says that it does: %q", without, said)
	}
	r.runLiqo(t)
	if with, said := enforced("pisa"), enforced("siena", "--for-liqo=false"); with != "" || said != "restricted" {
		t.Errorf("PodSecurity levels where Liqo runs: %q; if the user says that it does not: %q", with, said)
	}
}

// TestForLiqoUnseen: who may not see whether Liqo runs is told how to say it.
func TestForLiqoUnseen(t *testing.T) {
	unseen := apierrors.NewForbidden(schema.GroupResource{Resource: "of the test"}, "", nil)
	in := &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return unseen
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return unseen },
	}).Build()}
	f := addForLiqo(&cobra.Command{}, "")
	if _, err := f.runs(t.Context(), in); err == nil || !strings.Contains(err.Error(), "or say it yourself, with --for-liqo or --for-liqo=false") {
		t.Errorf("an error that names the flag is missing: %v", err)
	}
	if err := f.cmd.Flags().Set(flagForLiqo, "true"); err != nil {
		t.Fatal(err)
	}
	if liqo, err := f.runs(t.Context(), in); !liqo || err != nil {
		t.Errorf("the user has said it: %v, %v", liqo, err)
	}
}
