package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/docs"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// liqoGatewayRole is what Liqo 1.2 lets a gateway do with the objects that it reports in.
const liqoGatewayRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: liqo-gateway}
rules:
- apiGroups: [networking.liqo.io]
  resources: [connections]
  verbs: [create, delete, get, list, update, watch]
- apiGroups: [networking.liqo.io]
  resources: [connections/status]
  verbs: [get, patch, update]
- apiGroups: [networking.liqo.io]
  resources: [firewallconfigurations, firewallconfigurations/status]
  verbs: [get, list, patch, update, watch]
---
apiVersion: v1
kind: Namespace
metadata: {name: liqo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: liqo-gateway, namespace: liqo}
rules: []
`

// liqoConditions changes our CRDs to what Liqo 1.2 has in the statuses that a gateway
// writes: Connections have no conditions, those of FirewallConfigurations have four
// fields and are no map.
func liqoConditions(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		status := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["status"]
		switch crd.Spec.Names.Kind {
		case "Connection":
			delete(status.Properties, "conditions")
		case "FirewallConfiguration":
			conditions := status.Properties["conditions"]
			conditions.XListType, conditions.XListMapKeys = nil, nil
			for _, field := range []string{"message", "observedGeneration", "reason"} {
				delete(conditions.Items.Schema.Properties, field)
			}
			status.Properties["conditions"] = conditions
		}
	}
}

// A gateway under Liqo's CRDs and roles makes its Connection, writes what the schema
// has, and writes it once.
func TestUnderLiqosSchema(t *testing.T) {
	c := controlplanetest.StartBare(t)
	files, err := fs.Glob(deploy.CRDs(), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	crds := fstest.MapFS{}
	for _, file := range files {
		b, err := fs.ReadFile(deploy.CRDs(), file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(b, &crd); err != nil {
			t.Fatal(err)
		}
		liqoConditions(&crd)
		if b, err = yaml.Marshal(&crd); err != nil {
			t.Fatal(err)
		}
		crds[file] = &fstest.MapFile{Data: b}
	}
	if err := c.Install(crds, fstest.MapFS{"roles.yaml": {Data: []byte(liqoGatewayRole)}}); err != nil {
		t.Fatal(err)
	}
	rights := documentedRights(t)

	server, client := newPeering(t, c)
	for _, s := range []*side{server, client} {
		c.Apply(strings.NewReplacer("liqo-tenant-milan", s.namespace, "name: sluice-gateway", "name: sluice-"+s.namespace).Replace(rights))
		docs := s.manifests(objectManifests)
		s.create(t, docs[:len(docs)-2]...) // neither Connection nor Lease
		s.create(t, s.manifests(`
apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata: {name: quiet, namespace: $NAMESPACE, labels: {networking.liqo.io/firewall-category: gateway, networking.liqo.io/firewall-unique: $PEER}}
spec: {table: {name: quiet, family: IPV4, chains: [{name: forward, type: filter, hook: forward, policy: accept, priority: 0, rules: {}}]}}
status:
  conditions: [{host: another, type: Applied, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]`)...)
		s.start(t, "a")
	}
	for _, s := range []*side{server, client} {
		var connection networkingv1beta1.Connection
		controlplanetest.Eventually(t, s.mode+" connected", func(ctx context.Context) (err error) {
			if connection, err = s.connection(ctx); err == nil && connection.Status.Value != networkingv1beta1.Connected {
				err = fmt.Errorf("status %+v", connection.Status)
			}
			return err
		})
		owners := connection.OwnerReferences
		if len(owners) != 1 || owners[0].Name != "gw" || owners[0].UID == "" || connection.Labels["liqo.io/remote-cluster-id"] != s.peer {
			t.Errorf("the Connection of %s has owners %+v and labels %v", s.mode, owners, connection.Labels)
		}
		var table networkingv1beta1.FirewallConfiguration
		controlplanetest.Eventually(t, "the table is judged", func(ctx context.Context) error {
			if err := c.Get(ctx, s.namespace, "quiet", &table); err != nil {
				return err
			}
			if conditions := table.Status.Conditions; len(conditions) != 2 || conditions[0].Host != "another" || conditions[1].Host != "gw" || conditions[1].Status != "True" {
				return fmt.Errorf("conditions %+v", conditions)
			}
			return nil
		})
		// Whatever is written again and again was by the time at which the latency was.
		controlplanetest.Eventually(t, "another latency", func(ctx context.Context) error {
			later, err := s.connection(ctx)
			if err == nil && later.Status.Latency == connection.Status.Latency {
				err = errors.New("the same")
			}
			return err
		})
		var same networkingv1beta1.FirewallConfiguration
		if err := c.Get(t.Context(), s.namespace, "quiet", &same); err != nil || same.ResourceVersion != table.ResourceVersion {
			t.Errorf("the table is written again: %v, conditions %+v", err, same.Status.Conditions)
		}
	}
}

// documentedRights are those that docs/liqo.md gives to a gateway beside Liqo's.
func documentedRights(t *testing.T) string {
	t.Helper()
	text, err := fs.ReadFile(docs.Pages(), "liqo.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(text), "\n## Rights\n")
	_, rights, _ = strings.Cut(rights, "```yaml\n")
	rights, _, found := strings.Cut(rights, "```\n")
	if !found {
		t.Fatal("docs/liqo.md has no manifests of rights")
	}
	return rights
}
