package clusterdns

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const imports = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: web, namespace: shop}
spec: {type: ClusterSetIP, ips: [10.96.0.7, "fd00::7"], ports: [{name: http, port: 80}, {name: http3, port: 443, protocol: UDP}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: db, namespace: shop}
spec: {type: Headless, ports: [{name: pg, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: db-milan
  namespace: shop
  labels: {multicluster.kubernetes.io/service-name: db, multicluster.kubernetes.io/source-cluster: milan}
addressType: IPv4
ports: [{name: pg, port: 5432, protocol: TCP}]
endpoints:
- {addresses: [10.80.0.1], hostname: db-0, conditions: {ready: true}}
- {addresses: [10.80.0.2], hostname: db-1, conditions: {ready: false}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: db-rome
  namespace: shop
  labels: {multicluster.kubernetes.io/service-name: db, multicluster.kubernetes.io/source-cluster: rome}
addressType: IPv6
ports: [{name: pg, port: 5433}]
endpoints:
- {addresses: ["fd00:1::1"]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: of-this-cluster, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: pg, port: 5432}]
endpoints:
- {addresses: [10.0.0.9], conditions: {ready: true}}
`

// rights are those of deploy/chart/templates/clusterdns.yaml.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: clusterdns-test}
rules:
- {apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: clusterdns-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: clusterdns-test}
subjects: [{kind: ServiceAccount, name: clusterdns, namespace: shop}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: clusterdns, namespace: shop}
`

// TestCluster follows a real API server, with no more rights than it needs, and loses it.
func TestCluster(t *testing.T) {
	c := controlplanetest.Start(t)
	if err := c.Install(deploy.MultiCluster()); err != nil {
		t.Fatal(err)
	}
	c.Namespace(t, "shop", nil)
	c.Apply(rights)
	c.Apply(imports)
	cluster, err := NewCluster(c.ServiceAccount("shop", "clusterdns"), Options{TTL: 5})
	if err != nil {
		t.Fatal(err)
	}
	s, address := start(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { cluster.Run(ctx, s.Set) })
	t.Cleanup(func() { cancel(); wg.Wait() })

	r := resolver(address, "udp")
	resolves := func(what, name, want string) {
		t.Helper()
		controlplanetest.Eventually(t, what, func(ctx context.Context) error {
			ips, err := r.LookupHost(ctx, name+".svc.clusterset.local.")
			slices.Sort(ips)
			if got := fmt.Sprint(ips); err != nil || got != want {
				return fmt.Errorf("%s is %s, want %s: %w", name, got, want, err)
			}
			return nil
		})
	}
	resolves("a ClusterSetIP", "web.shop", "[10.96.0.7 fd00::7]")
	resolves("the ready endpoints of two clusters", "db.shop", "[10.80.0.1 fd00:1::1]")
	resolves("one endpoint", "db-0.milan.db.shop", "[10.80.0.1]")
	resolves("one without a host name", "fd00-1--1.rome.db.shop", "[fd00:1::1]")
	lookup, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if _, srv, err := r.LookupSRV(lookup, "http3", "udp", "web.shop.svc.clusterset.local."); err != nil || len(srv) != 1 || srv[0].Port != 443 {
		t.Errorf("the port http3 is %v: %v", srv, err)
	}
	// Readiness that changes, and a Service that goes.
	if out, err := c.Kubectl("patch", "endpointslice", "-n", "shop", "db-milan", "--type=json", "-p",
		`[{"op": "replace", "path": "/endpoints/1/conditions/ready", "value": true}]`); err != nil {
		t.Fatal(out, err)
	}
	resolves("an endpoint that became ready", "db.shop", "[10.80.0.1 10.80.0.2 fd00:1::1]")
	if out, err := c.Kubectl("delete", "serviceimport", "-n", "shop", "web"); err != nil {
		t.Fatal(out, err)
	}
	controlplanetest.Eventually(t, "a Service that went", func(ctx context.Context) error {
		_, err := r.LookupHost(ctx, "web.shop.svc.clusterset.local.")
		if e, ok := err.(*net.DNSError); !ok || !e.IsNotFound {
			return fmt.Errorf("web.shop still exists: %v", err)
		}
		return nil
	})
	c.StopAPIServer()
	controlplanetest.Eventually(t, "the loss is told", func(context.Context) error {
		if cluster.State().Connected {
			return fmt.Errorf("the API server counts as there")
		}
		return nil
	})
	resolves("without an API server", "db-1.milan.db.shop", "[10.80.0.2]")
}
