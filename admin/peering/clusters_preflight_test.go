package peering_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

// testPreflight asks for what cannot be.
func testPreflight(t *testing.T, local, remote *side) {
	ctx := t.Context()
	before := local.resourceVersions(t) + remote.resourceVersions(t)
	remote.Apply(`{apiVersion: v1, kind: Service, metadata: {name: other, namespace: default}, spec: {type: NodePort, ports: [{port: 1, nodePort: 30999, protocol: UDP}]}}`)
	for _, tt := range []struct {
		name          string
		local, remote *access.Cluster
		change        func(*peering.Options)
		want          []string
	}{
		{name: "the same cluster twice", remote: local.as(t, func(o *access.Options) { o.Name = access.Remote }),
			want: []string{"lead to the same cluster, rome", "--remote-kubeconfig"}},
		{name: "nothing installed", remote: remote.as(t, func(o *access.Options) { o.LiqoNamespace = "elsewhere" }),
			want: []string{"(remote) ", "not installed", "--remote-liqo-namespace"}},
		{name: "a template that does not exist", change: func(o *peering.Options) { o.Server.Template.Name = "fast" },
			want: []string{"(remote) there is no WgGatewayServerTemplate liqo/fast", "--gw-server-template-name"}},
		{name: "a template of an unknown kind", change: func(o *peering.Options) { o.Client.Template.Type = "example.com/v1/tunnels" },
			want: []string{"(local) the cluster does not know the template type example.com/v1/tunnels"}},
		{name: "a node port out of range", change: func(o *peering.Options) { o.Server.NodePorts = []int32{80} },
			want: []string{"(remote) --gw-server-service-nodeport 80: node ports are normally from 30000 to 32767", "--skip-validation"}},
		{name: "a node port in use", change: func(o *peering.Options) { o.Server.NodePorts = []int32{30999} },
			want: []string{"(remote) --gw-server-service-nodeport 30999: ", "already allocated"}},
		{name: "an MTU that is too small", change: func(o *peering.Options) { o.MTU = 500 }, want: []string{"--mtu 500"}},
		{name: "a user who sees nothing", local: user(t, local, "stranger", `""`),
			want: []string{"(local) the user of kubeconfig of stranger lacks rights", `"list gatewayservers.networking.liqo.io"`, `"create gatewayclients.networking.liqo.io in namespace liqo-tenant-milan"`, "nothing was changed"}},
		{name: "a user without rights", local: user(t, local, "nobody", `"", networking.liqo.io, ipam.liqo.io`), want: []string{"(local) ", "of kubeconfig of nobody"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options()
			if tt.change != nil {
				tt.change(&o)
			}
			l, r := local.access, remote.access
			if tt.local != nil {
				l = tt.local
			}
			if tt.remote != nil {
				r = tt.remote
			}
			var s told
			err := peering.Connect(ctx, l, r, o, s.tell)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
			if len(s.lines) > 0 {
				t.Errorf("lines were told: %q", s.lines)
			}
		})
	}
	t.Run("nodes with the addresses of the other cluster's", func(t *testing.T) { testTwinNodes(t, local, remote) })
	t.Run("keys that no gateway names", func(t *testing.T) { testStrayKeys(t, local, remote) })
	t.Run("an old CRD", func(t *testing.T) { testOldKind(t, local, remote) })
	t.Run("a namespace that is being deleted", func(t *testing.T) {
		remote.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: ending}}`)
		remote.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: ending, finalizers: [example.com/wait]}}`)
		if _, err := remote.Kubectl("delete", "namespace", "ending", "--wait=false"); err != nil {
			t.Fatal(err)
		}
		at := remote.as(t, func(o *access.Options) { o.Namespace, o.NamespaceGiven = "ending", true })
		err := peering.Connect(ctx, local.access, at, options(), nil)
		if err == nil || !strings.Contains(err.Error(), "(remote) namespace ending is being deleted") {
			t.Errorf("error %v", err)
		}
	})
	if diff := cmp.Diff(before, local.resourceVersions(t)+remote.resourceVersions(t)); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}
}

// testTwinNodes has a node of the remote cluster have the address of one of the local cluster.
func testTwinNodes(t *testing.T, local, remote *side) {
	var nodes corev1.NodeList
	if err := local.Client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	own := nodes.Items[0]
	twin := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin"}}
	remote.Create(t, twin)
	before := twin.DeepCopy()
	twin.Status.Addresses = own.Status.Addresses
	if err := remote.Client.Status().Patch(t.Context(), twin, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	err := peering.Connect(t.Context(), local.access, remote.access, options(), nil)
	if err == nil {
		t.Error("no error")
	} else {
		for _, want := range []string{
			"(remote) the gateway server's node port is reached at the address of a node, and " + own.Status.Addresses[0].Address + ", the address of node twin, is also that of node " + own.Name + " in cluster rome",
			"nothing was changed", "--gw-client-address",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
	}
	if err := remote.Client.Delete(t.Context(), twin); err != nil {
		t.Error(err)
	}
}

// testStrayKeys leaves the keys of a connection that was made by hand.
func testStrayKeys(t *testing.T, local, remote *side) {
	const manifest = `
{apiVersion: v1, kind: Namespace, metadata: {name: byhand, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: rome}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: gw-keys, namespace: byhand, labels: {networking.liqo.io/gateway-resource: "true", liqo.io/remote-cluster-id: rome}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: others, namespace: byhand, labels: {networking.liqo.io/gateway-resource: "true", liqo.io/remote-cluster-id: naples}}}
`
	remote.Apply(manifest)
	err := peering.Connect(t.Context(), local.access, remote.access, options(), nil)
	if err == nil {
		t.Error("no error")
	} else {
		for _, want := range []string{"(remote) Secret gw-keys is labelled as keys for cluster rome", "nothing was changed", "kubectl -n byhand delete secret gw-keys"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
	}
	var s told
	if err := peering.Reset(t.Context(), local.access, remote.access, options(), s.tell); err != nil {
		t.Error(err)
	}
	want := "WARN (remote) Secret byhand/gw-keys with keys for cluster rome is kept, because no controller created it"
	if !slices.ContainsFunc(s.lines, func(l string) bool { return strings.HasPrefix(l, want) }) {
		t.Errorf("reset does not say %q: %q", want, s.lines)
	}
	if _, err := remote.Kubectl("delete", "namespace", "byhand"); err != nil {
		t.Error(err)
	}
}

// user is somebody who may look at what is in some API groups and change nothing.
func user(t *testing.T, s *side, name, groups string) *access.Cluster {
	t.Helper()
	s.Apply(strings.NewReplacer("NAME", name, "GROUPS", groups).Replace(`
{apiVersion: v1, kind: ServiceAccount, metadata: {name: NAME, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules:
- {apiGroups: [GROUPS], resources: ["*"], verbs: [get, list]}
`))
	c, err := access.New(s.ServiceAccount("default", name), access.Options{Name: access.Local, Origin: "kubeconfig of " + name})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// testOldKind takes a field out of a schema.
func testOldKind(t *testing.T, local, remote *side) {
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/endpoint/properties/nodePort"
	crd := "gatewayservers.networking.liqo.io"
	was, err := remote.Kubectl("get", "crd", crd, "-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.endpoint}")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := strings.TrimSuffix(field, "/properties/nodePort")
	old := fmt.Sprintf(`[{"op":"replace","path":%q,"value":{"type":"object","properties":{"port":{"type":"integer"},"serviceType":{"type":"string"},"loadBalancerIP":{"type":"string"}}}}]`, endpoint)
	if _, err := remote.Kubectl("patch", "crd", crd, "--type=json", "-p", old); err != nil {
		t.Fatal(err)
	}
	err = peering.Connect(t.Context(), local.access, remote.access, options(), nil)
	if want := "(remote) the CRD gatewayservers.networking.liqo.io is outdated: it lacks spec.endpoint.nodePort"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := remote.Kubectl("patch", "crd", crd, "--type=json", "-p", fmt.Sprintf(`[{"op":"replace","path":%q,"value":%s}]`, endpoint, was)); err != nil {
		t.Fatal(err)
	}
}

// withoutConditions takes the conditions out of the schemas of kinds. What it returns puts
// them back.
func withoutConditions(t *testing.T, s *side, resources ...string) (restore func()) {
	t.Helper()
	const path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions"
	were := map[string]string{}
	for _, r := range resources {
		crd := r + ".networking.liqo.io"
		was, err := s.Kubectl("get", "crd", crd, "-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.status.properties.conditions}")
		if err != nil || was == "" {
			t.Fatalf("%s has no conditions: %v", crd, err)
		}
		were[crd] = was
		if _, err := s.Kubectl("patch", "crd", crd, "--type=json", "-p", fmt.Sprintf(`[{"op":"remove","path":%q}]`, path)); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		for crd, was := range were {
			if _, err := s.Kubectl("patch", "crd", crd, "--type=json", "-p", fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, path, was)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
