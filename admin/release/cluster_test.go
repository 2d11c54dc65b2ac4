package release_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestInstallation is the life of an installation.
func TestInstallation(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	for _, ns := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} { // the cluster is complete
		s.Namespace(t, ns, nil)
	}
	before := s.objects(t)

	t.Run("what nobody knows is asked", func(t *testing.T) {
		_, err := s.prepare(t, "", release.Options{})
		if err == nil || !strings.Contains(err.Error(), "set --pod-cidr (the present nodes have 10.243.1.0/24,10.243.2.0/24") || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("got %v", err)
		}
		same(t, "it changed something", before, s.objects(t))
	})
	t.Run("an older API server tells its range", func(t *testing.T) {
		got, err := release.ServiceRange(t.Context(), s.access)
		if err != nil || !slices.Equal(got, prefixes("10.96.0.0/16")) {
			t.Errorf("%v, %v", got, err)
		}
		same(t, "it changed something", before, s.objects(t))
	})
	t.Run("a dry run changes nothing", func(t *testing.T) {
		p, err := s.prepare(t, "", rome())
		if err != nil {
			t.Fatal(err)
		}
		if p.Services.From != "the ServiceCIDRs of the API server" {
			t.Errorf("Services from %s", p.Services.From)
		}
		text, err := p.DryRun(true)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"kind: CustomResourceDefinition", "name: liqo\n", "--pod-cidr=10.243.0.0/16", "--service-cidr=10.96.0.0/16"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
		same(t, "it changed something", before, s.objects(t))
	})
	t.Run("install", func(t *testing.T) { testInstall(t, s) })
	t.Run("roles for people", func(t *testing.T) { testUserRoles(t, s) })
	t.Run("again", func(t *testing.T) { testAgain(t, s) })
	t.Run("what is lost comes back", func(t *testing.T) {
		if _, err := s.Kubectl("delete", "clusterrole", "liqo-gateway"); err != nil {
			t.Fatal(err)
		}
		if r := s.install(t, rome()); !r.Changed || r.Revision != 2 {
			t.Errorf("%+v", r)
		}
		if _, err := s.Kubectl("get", "clusterrole", "liqo-gateway"); err != nil {
			t.Error(err)
		}
	})
	t.Run("upgrade", func(t *testing.T) { testUpgrade(t, s) })
	t.Run("an interrupted one is completed", func(t *testing.T) { testInterrupted(t, s) })
	t.Run("monitors", func(t *testing.T) { testMonitors(t, s) })
	t.Run("what is in the way", func(t *testing.T) { testInTheWay(t, s) })
	t.Run("a rollout that does not end", func(t *testing.T) { testStuck(t, s) })
	t.Run("Services of other clusters", func(t *testing.T) { testServices(t, s) })
	t.Run("peerings are in the way of an uninstallation", func(t *testing.T) { testPeerings(t, s) })
	t.Run("uninstall", func(t *testing.T) { testUninstall(t, s) })
	t.Run("what kubectl installed", func(t *testing.T) { testKubectl(t, s) })
	t.Run("the version before", func(t *testing.T) { testPrevious(t, s) })
	t.Run("uninstall all", func(t *testing.T) {
		// A key that a user has made, for a gateway.
		s.Apply(`
apiVersion: v1
kind: Secret
metadata: {name: stranger, namespace: default, labels: {networking.liqo.io/gateway-resource: "true", liqo.io/remote-cluster-id: milan}}
`)
		// What a test of the network leaves that somebody killed.
		s.Apply(`
apiVersion: v1
kind: Namespace
metadata: {name: liqo-test-network, labels: {app.kubernetes.io/managed-by: liqoctl}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: liqo-test-network, labels: {app.kubernetes.io/managed-by: liqoctl}}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan, labels: {app.kubernetes.io/managed-by: liqoctl, liqo.io/tenant-namespace: "true"}}
---
apiVersion: v1
kind: Secret
metadata: {name: liqo-nonce, namespace: liqo-tenant-milan}
---
apiVersion: v1
kind: Secret
metadata: {name: liqo-signed-nonce, namespace: liqo-tenant-milan}
`)
		for _, name := range []string{"nonce", "signed-nonce"} {
			// As authentication is off, they cannot be created as what they are.
			if _, err := s.Kubectl("-n", "liqo-tenant-milan", "label", "secret", "liqo-"+name, "liqo.io/"+name+"=true"); err != nil {
				t.Fatal(err)
			}
		}
		keptByUsers(t, s)
		p, err := s.prepareUninstall(t, release.UninstallOptions{Force: true, Purge: true})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"In cluster rome (" + s.access.Where() + "):", "  the installation in namespace liqo, and the node agents in liqo-fabric", "  links, routes and rules on 2 nodes",
			"  rights of a peering user: RoleBinding liqo/liqo-peer-user-naples-1", "  rights of a peering user: RoleBinding liqo-tenant-naples/liqo-peer-user-naples-1",
		}
		if !slices.ContainsFunc(p.ToRemove, func(l string) bool { return strings.HasSuffix(l, " of kind Network") }) {
			t.Errorf("the user is not told of the Networks: %q", p.ToRemove)
		}
		for _, line := range want {
			if !slices.Contains(p.ToRemove, line) {
				t.Errorf("the user is not told %q: %q", line, p.ToRemove)
			}
		}
		removed := s.uninstall(t, release.UninstallOptions{Force: true, Purge: true})
		if diff := cmp.Diff([]string{"namespace liqo-tenant-naples: it contains RoleBinding of-somebody, Secret cp-naples, Secret my-own"}, removed.Left); diff != "" {
			t.Errorf("left (-want +got)\n%s", diff)
		}
		after := s.objects(t)
		var kept []string
		for o := range after {
			if kind, name, _ := strings.Cut(o, " liqo-tenant-naples/"); (kind == "Secret" || kind == "RoleBinding" || kind == "Role") && name != "" {
				kept = append(kept, name)
			}
		}
		slices.Sort(kept)
		if diff := cmp.Diff([]string{"cp-naples", "my-own", "of-somebody"}, kept); diff != "" {
			t.Errorf("Secrets, Roles and RoleBindings in the namespace that stays (-want +got)\n%s", diff)
		}
		if _, err := s.Kubectl("delete", "namespace", "liqo-tenant-naples"); err != nil { // it waits
			t.Fatal(err)
		}
		if _, err := s.Kubectl("-n", "default", "delete", "secret", "stranger"); err != nil {
			t.Errorf("somebody's Secret is gone: %v", err)
		}
		same(t, "not everything is as before", before, s.objects(t))
		r, err := s.prepareUninstall(t, release.UninstallOptions{Purge: true})
		if err != nil || !r.Nothing {
			t.Errorf("there is something to uninstall: %v", err)
		}
	})
}

// keptByUsers makes a tenant namespace in which users have something, beside what liqoctl and the controllers make.
func keptByUsers(t *testing.T, s *site) {
	s.Apply(`
apiVersion: v1
kind: Namespace
metadata:
  name: liqo-tenant-naples
  labels: {app.kubernetes.io/managed-by: liqoctl, liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: naples}
---
apiVersion: authentication.liqo.io/v1beta1
kind: Identity
metadata: {name: naples, namespace: liqo-tenant-naples, labels: {liqo.io/remote-cluster-id: naples}}
spec: {clusterID: naples, type: ControlPlane}
---
apiVersion: v1
kind: Secret
metadata: {name: liqo-nonce, namespace: liqo-tenant-naples}
---
apiVersion: v1
kind: Secret
metadata: {name: liqo-signed-nonce, namespace: liqo-tenant-naples}
---
apiVersion: v1
kind: Secret
metadata: {name: liqo-copies, namespace: liqo-tenant-naples, labels: {liqo.io/managed: "true"}}
---
apiVersion: v1
kind: Secret
metadata: {name: my-own, namespace: liqo-tenant-naples}
---
apiVersion: v1
kind: Secret # of 'liqoctl create identity'
metadata: {name: cp-naples, namespace: liqo-tenant-naples, labels: {liqo.io/remote-cluster-id: naples, liqo.io/identity-type: ControlPlane}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: liqo-peer-user-naples-1, namespace: liqo-tenant-naples, labels: {liqo.io/remote-cluster-id: naples, liqo.io/peering-user-name: liqo-peer-user-naples-1}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-peering-user-tenant-ns}
subjects: [{kind: User, name: liqo-peer-user-naples-1, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: liqo-peer-user-naples-1, namespace: liqo, labels: {liqo.io/remote-cluster-id: naples, liqo.io/peering-user-name: liqo-peer-user-naples-1}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: liqo-peering-user-liqo-ns}
subjects: [{kind: User, name: liqo-peer-user-naples-1, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: liqo-peer-user-naples-1-keys, namespace: liqo-tenant-naples, labels: {liqo.io/remote-cluster-id: naples, liqo.io/peering-user-name: liqo-peer-user-naples-1}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: liqo-peer-user-naples-1} # of an older version
subjects: [{kind: User, name: liqo-peer-user-naples-1, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: liqo-peer-user-naples-1, namespace: liqo-tenant-naples, labels: {liqo.io/remote-cluster-id: naples, liqo.io/peering-user-name: liqo-peer-user-naples-1}}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: of-somebody, namespace: liqo-tenant-naples, labels: {liqo.io/peering-user-name: somebody}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: somebody, apiGroup: rbac.authorization.k8s.io}]
`)
	for _, name := range []string{"nonce", "signed-nonce"} { // as above
		if _, err := s.Kubectl("-n", "liqo-tenant-naples", "label", "secret", "liqo-"+name, "liqo.io/"+name+"=true"); err != nil {
			t.Fatal(err)
		}
	}
	var i authv1beta1.Identity
	s.Read(t, "liqo-tenant-naples", "naples", &i)
	s.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: i.Namespace, Name: "kubeconfig-naples", Labels: map[string]string{networkingv1beta1.LabelManaged: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&i, authv1beta1.GroupVersion.WithKind("Identity"))},
	}})
}

func testInstall(t *testing.T, s *site) {
	r := s.install(t, rome())
	if !r.Changed || r.Revision != 1 {
		t.Errorf("%+v", r)
	}
	if id, err := s.access.ID(t.Context()); err != nil || id != "rome" {
		t.Errorf("ID %s, %v", id, err)
	}
	i, err := s.access.Installation(t.Context())
	if err != nil || i.Version != "unknown" || i.Gateway != access.DefaultGateway {
		t.Errorf("%+v, %v", i, err)
	}
	for name, want := range map[string]string{"liqo": "restricted", "liqo-fabric": "privileged"} {
		var ns corev1.Namespace
		if err := s.Get(t.Context(), "", name, &ns); err != nil || ns.Labels["pod-security.kubernetes.io/enforce"] != want {
			t.Errorf("namespace %s: %v, %v", name, ns.Labels, err)
		}
	}
	// As `helm list` looks for them.
	var secrets corev1.SecretList
	if err := s.Client.List(t.Context(), &secrets, client.InNamespace("liqo"), client.MatchingLabels{"owner": "helm", "name": "sluice", "status": "deployed"}); err != nil {
		t.Fatal(err)
	}
	if len(secrets.Items) != 1 {
		t.Errorf("%d releases", len(secrets.Items))
	}
}

// testUserRoles asks what those may do who have the ClusterRoles for people.
func testUserRoles(t *testing.T, s *site) {
	const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: test-%[1]s, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: User, name: %[1]s, apiGroup: rbac.authorization.k8s.io}]
`
	for _, role := range []string{"liqo-view", "liqo-edit"} {
		s.Apply(fmt.Sprintf(binding, role))
		defer func() {
			if _, err := s.Kubectl("-n", "default", "delete", "rolebinding", "test-"+role); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, tt := range []struct {
		user, verb, group, resource string
		want                        bool
	}{
		{"liqo-view", "list", "networking.liqo.io", "configurations", true},
		{"liqo-view", "watch", "ipam.liqo.io", "ips", true},
		{"liqo-view", "list", "core.liqo.io", "foreignclusters", true},
		{"liqo-view", "create", "networking.liqo.io", "configurations", false},
		{"liqo-view", "get", "", "secrets", false},
		{"liqo-view", "get", "authentication.liqo.io", "identities", false}, // it may hold credentials
		{"liqo-edit", "create", "networking.liqo.io", "gatewayservers", true},
		{"liqo-edit", "delete", "ipam.liqo.io", "ips", true},
		{"liqo-edit", "create", "networking.liqo.io", "wggatewayservers", false}, // it says what pods are made
		{"liqo-edit", "get", "", "secrets", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: tt.user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: tt.verb, Group: tt.group, Resource: tt.resource}}}
		review, err := s.Clientset.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != tt.want {
			t.Errorf("%+v: %+v", tt, review.Status)
		}
	}
	for role, want := range map[string]string{"liqo-view": "true", "liqo-edit": ""} {
		out, err := s.Kubectl("get", "clusterrole", role, "-o", `jsonpath={.metadata.labels.rbac\.authorization\.k8s\.io/aggregate-to-view}`)
		if err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s is aggregated: %q, %v", role, out, err)
		}
	}
}

func testAgain(t *testing.T, s *site) {
	before := s.objects(t)
	if r := s.install(t, rome()); r.Changed || r.Revision != 1 {
		t.Errorf("%+v", r)
	}
	if r := s.install(t, release.Options{}); r.Changed { // the cluster knows it all by now
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff(before, s.objects(t)); diff != "" {
		t.Errorf("it changed something (-before +after)\n%s", diff)
	}
}

func testUpgrade(t *testing.T, s *site) {
	o := rome()
	o.Values = release.Values{"peering": release.Values{"networking": release.Values{"gateway": release.Values{"mtu": 1280}}}}
	if r := s.install(t, o); r.Revision != 3 {
		t.Errorf("%+v", r)
	}
	if i, err := s.access.Installation(t.Context()); err != nil || i.Gateway.MTU != 1280 {
		t.Errorf("%+v, %v", i, err)
	}
	o = rome()
	o.ResetValues = true
	p, err := s.prepare(t, "", o)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"values of the previous release that are not given now return to their defaults: peering.networking.gateway.mtu; without --reset-values they are kept",
		"this program was built without a version and installs images with the tag unknown: to use others, add --set tag=TAG",
	}
	if diff := cmp.Diff(want, p.Warnings); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
	// Without it everything stays: of who says less than before, and of who says nothing.
	for _, o := range []release.Options{rome(), {}} {
		if r := s.install(t, o); r.Changed {
			t.Errorf("%+v: %+v", o, r)
		}
	}
	testOtherBuild(t, s)
}

// testOtherBuild asks what programs of other builds would do to what was installed with
// a tag, and without one.
func testOtherBuild(t *testing.T, s *site) {
	prepare := func(o release.Options) *release.Plan {
		chart, err := release.Embedded(release.Build{Version: "a823017"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := release.Prepare(t.Context(), s.access, chart, "a823017", o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	changes := "Images change from sluice.local/controller:unknown, sluice.local/fabric:unknown, sluice.local/gateway:unknown to " +
		"sluice.local/controller:a823017, sluice.local/fabric:a823017, sluice.local/gateway:a823017"
	if p := prepare(rome()); !slices.Contains(p.Notes, changes) || len(p.Warnings) > 0 {
		t.Errorf("notes %q, warnings %q", p.Notes, p.Warnings)
	}
	tagged := rome()
	tagged.Values = release.Values{"tag": "unknown"}
	if r := s.install(t, tagged); !r.Changed {
		t.Errorf("%+v", r)
	}
	p := prepare(rome())
	want := []string{"the images keep the tag unknown of the installed release, but this program is version a823017: to install the matching images, add --set tag=a823017"}
	if diff := cmp.Diff(want, p.Warnings); diff != "" || slices.Contains(p.Notes, changes) || p.Version() != "unknown" {
		t.Errorf("version %s, notes %q, warnings (-want +got)\n%s", p.Version(), p.Notes, diff)
	}
	untagged := rome()
	untagged.Values = release.Values{"tag": nil}
	s.install(t, untagged)
}

// testInterrupted has a program die while it upgrades.
func testInterrupted(t *testing.T, s *site) {
	for _, age := range []time.Duration{2 * time.Minute, 58 * time.Second} {
		if err := release.Interrupt(s.access, age); err != nil {
			t.Fatal(err)
		}
		if r := s.install(t, rome()); !r.Changed {
			t.Errorf("%+v", r)
		}
	}
}

func testInTheWay(t *testing.T, s *site) {
	other := release.Options{ClusterID: "milan", PodCIDRs: prefixes("10.1.0.0/16")}
	_, err := s.prepare(t, "", other)
	for _, want := range []string{`this cluster is known to its peers as "rome"`, "the pod CIDR is 10.243.0.0/16 in this installation"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	elsewhere := *s.access
	elsewhere.LiqoNamespace = "network"
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := release.Prepare(t.Context(), &elsewhere, chart, "", rome()); err == nil || !strings.Contains(err.Error(), "there is already an installation in namespace liqo") {
		t.Errorf("got %v", err)
	}
	if _, err := release.PrepareUninstall(t.Context(), &elsewhere, chart, release.UninstallOptions{}); err == nil || !strings.Contains(err.Error(), "--liqo-namespace liqo") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Kubectl("annotate", "--overwrite", "crd", "networks.ipam.liqo.io", release.AnnotationVersion+"=v9.0.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.prepare(t, "v1.0.0", rome()); err == nil || !strings.Contains(err.Error(), "use liqoctl v9.0.0 or newer") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Kubectl("annotate", "crd", "networks.ipam.liqo.io", release.AnnotationVersion+"-"); err != nil {
		t.Fatal(err)
	}
	nobody := s.ServiceAccount("liqo", "default")
	a, err := access.New(nobody, access.Options{Origin: "a service account"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := release.Prepare(t.Context(), a, chart, "", rome()); err == nil || !strings.Contains(err.Error(), "lacks rights") {
		t.Errorf("got %v", err)
	}
}

// testStuck upgrades to what cannot run, and back.
func testStuck(t *testing.T, s *site) {
	for _, tt := range []struct {
		values release.Values
		until  string // the line of progress after which there is no time left
		want   []string
	}{
		{release.Values{"tag": "none"}, "0 of 2 pods are up to date", nil},
		{release.Values{"controllerManager": release.Values{"pod": release.Values{"extraArgs": []any{"--no-such-flag"}}}}, "CrashLoopBackOff",
			[]string{": pod liqo-controller-", "unknown flag: --no-such-flag"}}, // the pod may have ended once more since
	} {
		o := rome()
		o.Values, o.ResetValues = tt.values, true
		p, err := s.prepare(t, "", o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = p.Apply(ctx, func(e progress.Event) {
			t.Logf("%d %s", e.Kind, e.Text)
			if strings.Contains(e.Text, tt.until) {
				cancel()
			}
		})
		for _, want := range append(tt.want, "while waiting for the controller to be ready: 0 of 2 pods are up to date and ready", "Run the same command again to continue") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	o := rome()
	o.ResetValues = true
	s.install(t, o)
}

func testPeerings(t *testing.T, s *site) {
	labels := map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan", networkingv1beta1.LabelTenantNamespace: "true"}
	s.Namespace(t, "liqo-tenant-milan", labels)
	var beyond []string // the network
	for _, o := range []string{
		"{apiVersion: authentication.liqo.io/v1beta1, kind: Tenant, metadata: %s, spec: {clusterID: milan, authzPolicy: TolerateNoHandshake}}",
		"{apiVersion: authentication.liqo.io/v1beta1, kind: Identity, metadata: %s, spec: {clusterID: milan, type: ControlPlane}}",
		"{apiVersion: offloading.liqo.io/v1beta1, kind: VirtualNode, metadata: %s, spec: {clusterID: milan, createNode: true, kubeconfigSecretRef: {name: none}}}",
	} {
		o = fmt.Sprintf(o, "{name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}")
		s.Apply(o)
		if _, err := s.prepareUninstall(t, release.UninstallOptions{Purge: true}); err == nil || !strings.Contains(err.Error(), "Remove them with 'liqoctl unpeer', which") {
			t.Errorf("with %s: %v", o, err)
		}
		if _, err := s.KubectlInput(o, "delete", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		beyond = append(beyond, o)
	}
	beyond = append(beyond, `{apiVersion: authentication.liqo.io/v1beta1, kind: ResourceSlice,
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/replication: "true", liqo.io/remoteID: milan, liqo.io/remote-cluster-id: milan}},
spec: {class: default, providerClusterID: milan, consumerClusterID: rome}}`)
	s.Apply(`
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}, finalizers: [configuration.liqo.io/of-nobody]}
spec: {remote: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {port: 51840, serviceType: ClusterIP}}
`)
	controlplanetest.Eventually(t, "the gateway is there", func(ctx context.Context) error {
		var list networkingv1beta1.GeneveTunnelList
		if err := s.Client.List(ctx, &list); err != nil || len(list.Items) != 2 {
			return fmt.Errorf("%d tunnels, %v", len(list.Items), err)
		}
		return nil
	})
	for _, name := range []string{"milan", "of-somebody"} { // nobody plays the virtual kubelet here
		beyond = append(beyond, "{apiVersion: v1, kind: Node, metadata: {name: "+name+", labels: {liqo.io/type: virtual-node}}}")
	}
	s.Apply(strings.Join(beyond, "\n---\n"))
	_, err := s.prepareUninstall(t, release.UninstallOptions{})
	for _, want := range []string{
		`Configuration liqo-tenant-milan/milan
  GatewayServer liqo-tenant-milan/milan
  Identity liqo-tenant-milan/milan
  Tenant liqo-tenant-milan/milan
  VirtualNode liqo-tenant-milan/milan
`, "'liqoctl unpeer', or where only the networks are connected with 'liqoctl network reset'", "--force",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	removed := s.uninstall(t, release.UninstallOptions{Force: true})
	for _, kind := range []string{"Configuration", "ResourceSlice", "VirtualNode", "Identity", "Tenant"} {
		if !slices.Contains(removed.Objects, kind+" liqo-tenant-milan/milan") {
			t.Errorf("the %s is not among what was removed: %v", kind, removed.Objects)
		}
	}
	if nodes, err := s.Kubectl("get", "nodes", "-l", "liqo.io/type", "-o", "name"); err != nil || strings.TrimSpace(nodes) != "node/of-somebody" {
		t.Errorf("virtual Nodes after it: %s, %v", nodes, err)
	}
	if _, err := s.Kubectl("delete", "node", "of-somebody"); err != nil {
		t.Fatal(err)
	}
	if want := "namespace liqo-tenant-milan: liqoctl did not create it"; !slices.Contains(removed.Left, want) {
		t.Errorf("left %v, want %s", removed.Left, want)
	}
	controlplanetest.Eventually(t, "the namespace of the peer is empty", func(context.Context) error {
		for o := range s.objects(t) {
			if strings.Contains(o, " liqo-tenant-milan/") && o != "ServiceAccount liqo-tenant-milan/default" {
				return errors.New(o)
			}
		}
		return nil
	})
	s.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan"}})
	s.install(t, rome())
}

// testUninstall leaves what users have made.
func testUninstall(t *testing.T, s *site) {
	s.Apply(`
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: web, namespace: default, labels: {liqo.io/managed: "true"}}
spec: {type: ClusterSetIP, ports: [{port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: of-another-implementation, namespace: default}
spec: {type: ClusterSetIP, ports: [{port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web, namespace: default}
`)
	s.Apply(`
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: printer, namespace: liqo}
spec: {ip: 192.0.2.7}
`)
	var lines []string
	r, err := s.prepareUninstall(t, release.UninstallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	removed, err := r.Run(t.Context(), s.log(t, &lines))
	if err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob("../../deploy/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"namespace liqo: it contains IP printer",
		fmt.Sprint(len(crds), " CRDs of networking.liqo.io, ipam.liqo.io, authentication.liqo.io, offloading.liqo.io, core.liqo.io, and the objects that users created of their kinds: remove them with --purge"),
		"CRDs serviceexports.multicluster.x-k8s.io and serviceimports.multicluster.x-k8s.io, and ServiceExport default/web, ServiceImport default/of-another-implementation, " +
			"because other software may use them: if none does, 'kubectl delete crd serviceexports.multicluster.x-k8s.io serviceimports.multicluster.x-k8s.io' deletes them and all objects of their kinds",
	}
	if diff := cmp.Diff(want, removed.Left); diff != "" {
		t.Errorf("left (-want +got)\n%s", diff)
	}
	for _, want := range []string{"Removed DaemonSet liqo-fabric/liqo-fabric", "Nodes are clean (2)", "Removed ConfigMap liqo/liqo-clusterid-configmap"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in %q", want, lines)
		}
	}
	for _, want := range []string{
		"Deployment liqo/liqo-controller", "Network liqo/pod-cidr", "InternalNode node-1", "Namespace liqo-fabric", "ClusterRole liqo-controller",
		"ServiceImport default/web",
	} {
		if !slices.Contains(removed.Objects, want) {
			t.Errorf("%s is not among what was removed: %v", want, removed.Objects)
		}
	}
	if _, err := s.Kubectl("-n", "default", "delete", "serviceimport/of-another-implementation", "serviceexport/web"); err != nil {
		t.Errorf("a ServiceImport of somebody else, or a ServiceExport, is gone: %v", err)
	}
	if _, err := s.Kubectl("delete", "crd", "serviceimports.multicluster.x-k8s.io", "serviceexports.multicluster.x-k8s.io"); err != nil {
		t.Error(err)
	}
}

// testKubectl takes over, and removes, what came without Helm.
func testKubectl(t *testing.T, s *site) {
	s.uninstall(t, release.UninstallOptions{Purge: true})
	apply := func() {
		t.Helper()
		if err := s.Install(deploy.CRDs(), deploy.Manifests()); err != nil {
			t.Fatal(err)
		}
		b, err := fs.ReadFile(deploy.Manifests(), "controller/controller.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(strings.NewReplacer("<CLUSTER_ID>", "rome", "<POD_CIDR>", "10.243.0.0/16").Replace(string(b)))
	}
	apply()
	if r := s.install(t, release.Options{ClusterID: "rome", PodCIDRs: prefixes("10.243.0.0/16")}); r.Revision != 1 {
		t.Errorf("%+v", r)
	}
	for _, again := range []bool{false, true} {
		if again { // this time without a release
			apply()
		}
		removed := s.uninstall(t, release.UninstallOptions{Purge: true})
		if diff := cmp.Diff([]string{"namespace liqo: liqoctl did not create it"}, removed.Left); diff != "" {
			t.Errorf("left (-want +got)\n%s", diff)
		}
	}
	if _, err := s.Kubectl("delete", "namespace", "liqo"); err != nil {
		t.Fatal(err)
	}
}
