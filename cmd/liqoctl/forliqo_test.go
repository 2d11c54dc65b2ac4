package main

import (
	"context"
	"strings"
	"testing"
)

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

	d := controllerDeployment("ghcr.io/liqotech/liqo-controller-manager:v1.2.0")
	d.SetName("net-controller-manager") // with nameOverride: net
	r.Create(t, d)
	defer func() {
		if err := r.Client.Delete(context.Background(), d); err != nil {
			t.Error(err)
		}
	}()
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
