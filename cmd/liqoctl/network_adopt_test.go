package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/admin/release"
)

func TestAdoptionLines(t *testing.T) {
	got := adoptionLines([]release.AdoptionStep{
		{Verb: "create", Object: "ClusterRole sluice-adopted-gateway"},
		{Verb: "switch", Object: "GatewayServer liqo-tenant-milan/milan", Detail: "spec.serverTemplateRef.name: a -> b"},
	}, "  ")
	want := "  create   ClusterRole sluice-adopted-gateway\n" +
		"  switch   GatewayServer liqo-tenant-milan/milan  spec.serverTemplateRef.name: a -> b\n"
	if diff := cmp.Diff(want, strings.Join(got, "")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
