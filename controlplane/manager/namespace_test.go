package manager_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/source"
)

// ofEveryKind are specs of the kinds that a namespace can hold, and the finalizers that Liqo's
// controllers set on their objects.
var ofEveryKind = map[string]struct {
	spec       string
	finalizers []string
}{
	"Identity":                {`{clusterID: milan, type: ControlPlane}`, nil},
	"Renew":                   {`{}`, []string{"crdreplicator.liqo.io/resource"}},
	"ResourceSlice":           {`{}`, []string{"crdreplicator.liqo.io/resource"}},
	"Tenant":                  {`{clusterID: milan, authzPolicy: TolerateNoHandshake}`, []string{"tenant.liqo.io/finalizer"}},
	"IP":                      {`{ip: 10.243.7.7}`, []string{"ip.ipam.liqo.io/finalizer", "ipmapping-nat-controller.liqo.io/finalizer"}},
	"Network":                 {`{cidr: 10.55.0.0/16}`, []string{"network.ipam.liqo.io/finalizer"}},
	"Configuration":           {`{remote: {cidr: {pod: [10.56.0.0/16], external: [10.57.0.0/16]}}}`, nil},
	"Connection":              {`{type: Server, gatewayRef: {}}`, nil},
	"ExportedService":         {`{namespace: shop, name: web, type: ClusterSetIP}`, nil},
	"ImportedService":         {`{namespace: shop, name: web, type: ClusterSetIP}`, nil},
	"FirewallConfiguration":   {`{table: {name: milan, family: IPV4}}`, []string{"firewallconfigurations-controller.liqo.io/finalizer"}},
	"RouteConfiguration":      {`{table: {name: milan, rules: [{dst: 10.9.0.0/16, routes: [{dst: 10.9.0.0/16, dev: liqo.x}]}]}}`, []string{"routeconfiguration-controller.liqo.io/finalizer"}},
	"GatewayServer":           {`{endpoint: {port: 51840, serviceType: NodePort}, mtu: 1340, serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: none, namespace: liqo}}`, nil},
	"GatewayClient":           {`{endpoint: {port: 51840, addresses: [192.0.2.1]}, mtu: 1340, clientTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClientTemplate, name: none, namespace: liqo}}`, nil},
	"GeneveTunnel":            {`{id: 7, internalFabricRef: {name: of-liqo}, internalNodeRef: {name: none}}`, nil},
	"InternalFabric":          {`{gatewayIP: 10.243.1.9, interface: {gateway: {ip: 10.80.0.9}, node: {name: liqo.x}}}`, []string{"networking.liqo.io/internal-fabric-geneve-tunnel-finalizer", "internalfabric-controller.liqo.io/finalizer"}},
	"PublicKey":               {`{publicKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}`, nil},
	"WgGatewayServer":         {`{deployment: {spec: {selector: {}, template: {}}}, service: {spec: {}}}`, []string{"networking.liqo.io/clusterrolebinding"}},
	"WgGatewayClient":         {`{deployment: {spec: {selector: {}, template: {}}}}`, []string{"networking.liqo.io/clusterrolebinding"}},
	"WgGatewayServerTemplate": {`{objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServer}, template: {spec: {deployment: {spec: {selector: {}, template: {}}}, service: {spec: {}}}}}`, nil},
	"WgGatewayClientTemplate": {`{objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClient}, template: {spec: {deployment: {spec: {selector: {}, template: {}}}}}}`, nil},
	"NamespaceMap":            {`{desiredMapping: {}}`, []string{"namespacemap-controller.liqo.io/finalizer", "crdreplicator.liqo.io/resource"}},
	"NamespaceOffloading":     {`{namespaceMappingStrategy: DefaultName, podOffloadingStrategy: LocalAndRemote}`, []string{"namespaceoffloading-controller.liqo.io/finalizer"}},
	"Quota":                   {`{user: milan, resources: {cpu: 1}}`, nil},
	"ShadowEndpointSlice":     {`{}`, nil},
	"ShadowPod":               {`{}`, nil},
	"VirtualNode":             {`{clusterID: milan}`, []string{"virtualnode-controller.liqo.io/finalizer"}},
	"VkOptionsTemplate":       {`{containerImage: none, createNode: true, disableNetworkCheck: false, metricsEnabled: false}`, nil},
}

// named are the kinds whose objects have a name that says what they are.
var named = map[string]string{"NamespaceOffloading": "offloading", "ExportedService": "shop.web", "ImportedService": "shop.web"}

// TestNamespacesEnd deletes a namespace with an object of each kind that it can hold, and with
// all finalizers that Liqo would have set on them. It goes, and everything in it.
func TestNamespacesEnd(t *testing.T) {
	c, run := whole(t)
	ns := tenantNamespace("milan")
	c.Create(t, ns)
	tested := map[string]bool{
		// Of what no namespace holds: TestControllers of foreigncluster, and of internalnetwork.
		"api-server-checker.liqo.io/finalizer": true, "internalnodes-route.liqo.io/finalizer": true,
	}
	var kinds []string
	put := func(apiVersion, kind, spec string, finalizers []string) {
		t.Helper()
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte("spec: "+spec), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(apiVersion)
		o.SetKind(kind)
		o.SetNamespace(ns.Name)
		o.SetName("of-liqo")
		if name := named[kind]; name != "" {
			o.SetName(name)
		}
		o.SetLabels(map[string]string{"liqo.io/remote-cluster-id": "milan"})
		o.SetFinalizers(finalizers)
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, f := range finalizers {
			tested[f] = true
		}
	}
	files, err := fs.Glob(deploy.CRDs(), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		text, err := fs.ReadFile(deploy.CRDs(), file)
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		kind := crd.Spec.Names.Kind
		if crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
			continue
		}
		kinds = append(kinds, kind)
		if of, known := ofEveryKind[kind]; known {
			put(crd.Spec.Group+"/"+crd.Spec.Versions[0].Name, kind, of.spec, of.finalizers)
		}
	}
	put("v1", "Secret", "{}", []string{"crdreplicator.liqo.io/operator"})
	slices.Sort(kinds)
	if diff := cmp.Diff(kinds, slices.Sorted(maps.Keys(ofEveryKind))); diff != "" {
		t.Errorf("kinds that a namespace can hold, and of this test (-CRDs +test):\n%s", diff)
	}
	for _, f := range finalizersOf(t) {
		if !tested[f] {
			t.Errorf("nothing has the finalizer %s", f)
		}
	}

	c.Delete(t, ns)
	run() // what is deleted while no controller runs goes all the same
	c.Gone(t, ns)
}

// TestOtherFinalizersStay: what somebody else waits for is not ended.
func TestOtherFinalizersStay(t *testing.T) {
	c, run := whole(t)
	run()
	ns := tenantNamespace("milan")
	c.Create(t, ns)
	of := ofEveryKind["Tenant"]
	o := new(unstructured.Unstructured)
	if err := yaml.Unmarshal([]byte("spec: "+of.spec), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetAPIVersion("authentication.liqo.io/v1beta1")
	o.SetKind("Tenant")
	o.SetNamespace(ns.Name)
	o.SetName("milan")
	o.SetFinalizers(append([]string{"example.org/theirs"}, of.finalizers...))
	c.Create(t, o)
	c.Delete(t, o)
	controlplanetest.Eventually(t, "Liqo's finalizer goes, and the other one stays", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if got := o.GetFinalizers(); !slices.Equal(got, []string{"example.org/theirs"}) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if err := c.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	c.Gone(t, o)
}

// finalizersOf are those that the API knows.
func finalizersOf(t *testing.T) (all []string) {
	t.Helper()
	form := regexp.MustCompile(`(?m)^\s*(?:const )?Finalizer\w+\s*= "([^"]+)"`)
	err := filepath.WalkDir(source.Path("api"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range form.FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		return err
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%q, %v", all, err)
	}
	return all
}
