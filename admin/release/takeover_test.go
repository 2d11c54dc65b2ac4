package release_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// takeoverSite is a cluster in which Liqo runs a whole network.
type takeoverSite struct {
	*adoptionSite
	left map[string]string // what Sluice's agents say of Liqo's, by node
}

func (s *takeoverSite) takeOver(o release.Options) (*release.TakeOver, error) {
	s.t.Helper()
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		s.t.Fatal(err)
	}
	return release.PrepareTakeOver(s.t.Context(), s.access, chart, "", o)
}

func (s *takeoverSite) handBack() (*release.HandBack, error) {
	s.t.Helper()
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		s.t.Fatal(err)
	}
	return release.PrepareHandBack(s.t.Context(), s.access, chart, release.UninstallOptions{Timeout: controlplanetest.Patience})
}

// runner is a takeover, or the way back.
type runner func(ctx context.Context, tell progress.Func) error

func (s *takeoverSite) forward() (runner, error) {
	t, err := s.takeOver(release.Options{ReservedSubnets: prefixes(reservedForSluice)})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tell progress.Func) error { _, err := t.Run(ctx, tell); return err }, nil
}

func (s *takeoverSite) back() (runner, error) {
	h, err := s.handBack()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tell progress.Func) error { _, err := h.Run(ctx, tell); return err }, nil
}

// until runs what is prepared, and ends it when a text is told; empty: it must come to its end.
func (s *takeoverSite) until(prepare func() (runner, error), text string) {
	s.t.Helper()
	run, err := prepare()
	if err != nil {
		s.t.Fatalf("up to %q: %v", text, err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*controlplanetest.Patience)
	defer cancel()
	told := false
	err = run(ctx, func(e progress.Event) {
		s.tell(e)
		if text != "" && strings.Contains(e.Text, text) {
			told = true
			cancel()
		}
	})
	switch {
	case text == "" && err != nil:
		s.t.Fatalf("%v; Liqo was refused %v", err, s.refused())
	case text != "" && (err == nil || !told):
		s.t.Fatalf("it was not interrupted at %q: %v", text, err)
	}
}

// interrupted runs what is prepared anew each time up to one of the texts, and at last to the end.
func (s *takeoverSite) interrupted(prepare func() (runner, error), at ...string) {
	s.t.Helper()
	for _, text := range append(at, "") {
		s.until(prepare, text)
	}
}

// network is what must stay the same whoever runs the network: addresses, prefixes, names of links, and the gateways' pods.
func (s *takeoverSite) network() []string {
	s.t.Helper()
	const fields = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.spec.cidr} {.status.cidr} {.status.ip} ` +
		`{.status.remote} {.spec.gatewayIP} {.spec.interface} {.spec.remoteCIDRs} {.spec.id} {.spec.clusterIP} {.spec.ports} {.data}{"\n"}{end}`
	var lines []string
	for _, kinds := range []string{
		"networks.ipam.liqo.io,ips.ipam.liqo.io,configurations.networking.liqo.io,internalfabrics,internalnodes,genevetunnels,gatewayservers,gatewayclients,wggatewayservers,wggatewayclients",
		"services,secrets,deployments,pods -l networking.liqo.io/component=gateway",
	} {
		words := strings.Fields(kinds)
		out, err := s.Kubectl(append([]string{"get", words[0], "-A", "-o", fields}, words[1:]...)...)
		if err != nil {
			s.t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(out), "\n")...)
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, reservedForSluice) })
	slices.Sort(lines)
	return lines
}

func (s *takeoverSite) same(what string, before []string) {
	s.t.Helper()
	if diff := cmp.Diff(before, s.network()); diff != "" {
		s.t.Errorf("%s (-before +after)\n%s", what, diff)
	}
}

// everything are the names of all objects but those that come and go by themselves.
func (s *takeoverSite) everything() map[string]string {
	s.t.Helper()
	found := (&site{Cluster: s.Cluster, access: s.access}).objects(s.t)
	maps.DeleteFunc(found, func(name, _ string) bool {
		kind, _, _ := strings.Cut(name, " ")
		return slices.Contains([]string{"Pod", "ControllerRevision", "ReplicaSet", "EndpointSlice", "Endpoints"}, kind)
	})
	return found
}

// gone waits until no object has this in its name.
func (s *takeoverSite) gone(part string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, part+" is gone", func(context.Context) error {
		for o := range s.everything() {
			if strings.Contains(o, part) {
				return errors.New(o)
			}
		}
		return nil
	})
}

// TestTakeOver hands the whole network of Liqo over, and back, twice.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := startTakeOver(t)
	for _, ns := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} { // the cluster is complete
		if err := s.CreateNamespace(ns, nil); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	t.Run("before the gateways", func(t *testing.T) {
		_, err := s.takeOver(release.Options{})
		for _, want := range []string{
			"nothing was changed", "GatewayServer liqo-tenant-milan/milan is Liqo's: hand it over first, with 'liqoctl network adopt --all'",
			"GatewayClient liqo-tenant-oslo/oslo is Liqo's",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		if h, err := s.handBack(); err != nil || !h.Nothing {
			t.Errorf("there is something to give back: %v", err)
		}
		testLeftTrial(t, s)
	})
	s.adopt(release.AdoptOptions{All: true})
	s.leave()
	before, objects := s.network(), s.everything()
	var original apiextensionsv1.CustomResourceDefinition
	s.Read(t, "", "configurations.networking.liqo.io", &original)

	t.Run("a dry run", func(t *testing.T) { testDryTakeOver(t, s) })
	t.Run("images", func(t *testing.T) { testImages(t, s) })
	t.Run("a namespace that goes late", func(t *testing.T) { testTerminating(t, s) })
	s.same("the dry run, or a trial, changed something", before)
	forth := []string{"Liqo's controllers write nothing of the network any more", "Liqo's node agents have ended", "CRDs correctly applied", "Release sluice correctly installed",
		"Controller is ready", "Node agents are ready"}
	back := []string{"Removed Deployment liqo/liqo-controller", "Deployment liqo-ipam runs again", "Deployment liqo-controller-manager starts again",
		"Liqo's controllers write what is of the network again", "Removed DaemonSet liqo-fabric/liqo-fabric", "Liqo's node agents have their rules in force", "Nodes are clean"}
	t.Run("turned round in the middle", func(t *testing.T) {
		s.until(s.forward, "Liqo's controllers write nothing of the network any more")
		s.toldInterrupted("there is ValidatingAdmissionPolicy liqo-network.sluice.liqo.io, ")
		s.refusesAdoption()
		s.until(s.forward, "Liqo's node agents have ended")
		s.toldInterrupted("there is no Deployment liqo/liqo-controller, no DaemonSet liqo-fabric/liqo-fabric; Liqo's controllers may write nothing of the network: 'liqoctl install --adopt")
		s.refusesAdoption()
		s.interrupted(s.back)
		s.toldInterrupted("")
		s.agents("are back", 2)
		s.same("something of the network is not as it was", before)
		same(t, "not everything is as before", objects, s.everything())
	})
	for _, round := range []string{"first", "second"} {
		t.Run(round+" takeover", func(t *testing.T) {
			if round == "first" {
				s.interrupted(s.forward, forth...)
			} else {
				testTakeOverAway(t, s)
			}
			s.agents("have ended", 0)
			s.same("something of the network is not as it was", before)
			testTakenOver(t, s)
		})
		if round == "first" {
			t.Run("gateways of Liqo's templates", func(t *testing.T) { testLiqosTemplate(t, s) })
			t.Run("what happens meanwhile", func(t *testing.T) { testMeanwhile(t, s) })
			t.Run("turned round at the end of the way back", func(t *testing.T) {
				s.until(s.back, "Waiting until the nodes are clean")
				s.toldInterrupted("there is ConfigMap liqo/sluice-liqo-crds; there is no Deployment liqo/liqo-controller")
				s.interrupted(s.forward)
				if err := s.Get(t.Context(), "liqo-fabric", "liqo-fabric-cleanup", new(appsv1.DaemonSet)); !apierrors.IsNotFound(err) {
					t.Errorf("the nodes are cleaned up while Sluice's agents work there: %v", err)
				}
				s.agents("have ended", 0)
				s.same("something of the network is not as it was", before)
			})
		}
		t.Run(round+" hand-back", func(t *testing.T) {
			if round == "first" {
				s.interrupted(s.back, back...)
			} else {
				testHandBackAway(t, s)
			}
			s.agents("are back", 2)
			s.same("something of the network is not as it was", before)
			testGivenBack(t, s, &original)
			same(t, "not everything is as before", objects, s.everything())
		})
	}
	t.Run("nothing is left but ended agents", func(t *testing.T) { testEndedAgents(t, s) })
	t.Run("the gateways follow", func(t *testing.T) {
		s.adopt(release.AdoptOptions{All: true, Back: true})
		s.carries("milan", 3)
	})
}

func testDryTakeOver(t *testing.T, s *takeoverSite) {
	all := s.everything()
	o, err := s.takeOver(release.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []release.AdoptionStep{
		{Verb: "try", Object: "DaemonSet liqo-fabric/sluice-trial-fabric", Detail: "runs sluice.local/fabric:unknown once, and goes again"},
		{Verb: "try", Object: "Pod liqo/sluice-trial-controller", Detail: "runs sluice.local/controller:unknown once, and goes again"},
		{Verb: "create", Object: "ValidatingAdmissionPolicy liqo-network.sluice.liqo.io"},
		{Verb: "replace", Object: "CustomResourceDefinition configurations.networking.liqo.io", Detail: "by Sluice's; Liqo's is kept in ConfigMap liqo/sluice-liqo-crds"},
		{Verb: "create", Object: "ConfigMap liqo/sluice-liqo-crds"},
		{Verb: "create", Object: "CustomResourceDefinition exportedservices.networking.liqo.io"},
		{Verb: "update", Object: "DaemonSet liqo/liqo-fabric", Detail: "spec.template.spec.nodeSelector: its pods end, and what they have made on the nodes stays"},
		{Verb: "create", Object: "Deployment liqo/liqo-controller"},
		{Verb: "create", Object: "ClusterRole sluice-gateway"},
		{Verb: "hand", Object: "Network liqo-tenant-milan/milan-pod", Detail: "with its addresses, to Sluice's controllers"},
		{Verb: "keep", Object: "ServiceAccount liqo/liqo-controller-manager", Detail: "Liqo's programs go on, for authentication and offloading"},
	} {
		if !slices.Contains(o.Steps, want) {
			t.Errorf("no step %+v among %+v", want, o.Steps)
		}
	}
	for path, want := range map[string]string{"adoption": "map[enabled:true liqoTables:[milan-masquerade-bypass]]", "ipam": "[10.0.0.0/8 192.168.0.0/16]"} {
		if got := fmt.Sprint(o.Values[path]); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if diff := cmp.Diff(all, s.everything()); diff != "" {
		t.Errorf("it changed something (-before +after)\n%s", diff)
	}
	s.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: sluice-gateway, annotations: {meta.helm.sh/release-name: other, meta.helm.sh/release-namespace: liqo}}}`)
	if _, err := s.takeOver(release.Options{}); err == nil || !strings.Contains(err.Error(), "ClusterRole sluice-gateway belongs to the Helm release other") {
		t.Errorf("an object of another release would be taken: %v", err)
	}
	if _, err := s.Kubectl("delete", "clusterrole", "sluice-gateway"); err != nil {
		t.Fatal(err)
	}
}

// testTakenOver looks from all sides at a network that was taken over.
func testTakenOver(t *testing.T, s *takeoverSite) {
	o, err := s.takeOver(release.Options{})
	if err != nil || !o.Idle() {
		t.Errorf("not all is done: %v, %+v", err, o)
	}
	s.toldInterrupted("")
	if i, err := s.access.Installation(t.Context()); err != nil || !i.Adopted {
		t.Errorf("%+v, %v", i, err)
	}
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := release.Prepare(t.Context(), s.access, chart, "", release.Options{}); err == nil || !strings.Contains(err.Error(), "add --adopt") {
		t.Errorf("a plain installation: %v", err)
	}
	if _, err := release.PrepareUninstall(t.Context(), s.access, chart, release.UninstallOptions{}); err == nil || !strings.Contains(err.Error(), "--hand-back") {
		t.Errorf("a plain uninstallation: %v", err)
	}
	testServed(t, s)
	testLiqosFinalizers(t, s)
	// What Liqo's release has stays its own.
	if out, err := s.Kubectl("get", "clusterrole", "liqo-gateway", "-o", `jsonpath={.metadata.annotations.meta\.helm\.sh/release-name} {.rules[*].resources}`); err != nil || out != `liqo ["pods"]` {
		t.Errorf("Liqo's ClusterRole: %s, %v", out, err)
	}
	ctx, liqo := t.Context(), s.writer()
	network := func(o client.Object) func() error {
		return func() error { return liqo.Create(ctx, o, client.DryRunAll) }
	}
	ip := func(name string, labels map[string]string, finalizers ...string) *ipamv1alpha1.IP {
		return &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: labels, Finalizers: finalizers}, Spec: ipamv1alpha1.IPSpec{IP: "10.60.1.6"}}
	}
	ofPod := map[string]string{"offloading.liqo.io/pod-name": "db", "offloading.liqo.io/pod-namespace": "shop"}
	var n ipamv1alpha1.Network
	s.Read(t, "liqo-tenant-milan", "milan-pod", &n)
	var d appsv1.Deployment
	s.Read(t, "liqo-tenant-milan", "gw-milan", &d)
	var web ipamv1alpha1.IP
	s.Read(t, "liqo", "web", &web)
	var f networkingv1beta1.InternalFabric
	s.Read(t, "liqo-tenant-milan", "milan", &f)
	for _, tt := range []struct {
		what    string
		write   func() error
		allowed bool
	}{
		{"a Network", network(&ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "n"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.99.0.0/16"}}), false},
		{"the status of a Network", func() error {
			o := n.DeepCopy()
			o.Status.CIDR = "10.61.0.0/16"
			return liqo.Status().Update(ctx, o, client.DryRunAll)
		}, false},
		{"the end of a Network", func() error { return liqo.Delete(ctx, n.DeepCopy(), client.DryRunAll) }, false},
		{"a finalizer of an InternalFabric", func() error {
			o := f.DeepCopy()
			o.Finalizers = nil
			return liqo.Update(ctx, o, client.DryRunAll)
		}, false},
		{"an IP", network(ip("i", nil)), false},
		{"an IP of an offloaded pod", network(ip("i", ofPod)), true},
		{"an IP of the API server", network(ip("i", map[string]string{ipamv1alpha1.LabelIPType: ipamv1alpha1.IPTypeAPIServer})), true},
		{"an IP of an offloaded pod with a finalizer", network(ip("i", ofPod, "ip.ipam.liqo.io/finalizer")), false},
		{"the status of an IP of an offloaded pod", func() error {
			o := web.DeepCopy()
			o.Finalizers = nil
			return liqo.Status().Update(ctx, o, client.DryRunAll)
		}, false},
		{"the end of an IP of an offloaded pod", func() error { return liqo.Delete(ctx, web.DeepCopy(), client.DryRunAll) }, true},
		{"the Deployment of a gateway", func() error { return liqo.Update(ctx, d.DeepCopy(), client.DryRunAll) }, false},
		{"a Secret", network(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "kubeconfig"}}), true},
		{"a Tenant", network(&authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: authv1beta1.TenantSpec{ClusterID: "milan"}}), true},
		{"a Deployment of a virtual kubelet", func() error {
			o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "vk-milan"}, Spec: *d.Spec.DeepCopy()}
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "offloading.liqo.io/v1beta1", Kind: "VirtualNode", Name: "milan", UID: "u"}}
			return liqo.Create(ctx, o, client.DryRunAll)
		}, true},
	} {
		err := tt.write()
		if refused := err != nil && strings.Contains(err.Error(), "liqoctl uninstall --hand-back"); refused == tt.allowed || tt.allowed && err != nil {
			t.Errorf("%s of Liqo's controllers: %v", tt.what, err)
		}
	}
	if err := s.Client.Create(ctx, ip("i", nil), client.DryRunAll); err != nil {
		t.Errorf("an administrator is refused an IP: %v", err)
	}
}

// testMeanwhile lets happen what may happen while Sluice runs the network. All of it goes again.
func testMeanwhile(t *testing.T, s *takeoverSite) {
	ctx := t.Context()
	db := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "db", Labels: map[string]string{"offloading.liqo.io/pod-name": "db"}}, Spec: ipamv1alpha1.IPSpec{IP: "10.60.1.7"}}
	if err := s.writer().Create(ctx, db); err != nil {
		t.Fatal(err)
	}
	// As strings, which Liqo's controllers cannot read.
	s.Apply(`{apiVersion: networking.liqo.io/v1beta1, kind: Configuration, metadata: {name: bergen, namespace: liqo-tenant-oslo, labels: {liqo.io/remote-cluster-id: bergen}},
		spec: {remote: {cidr: {pod: 10.244.0.0/16, external: 10.70.0.0/16}}}}`)
	controlplanetest.Eventually(t, "the new objects have addresses", func(ctx context.Context) error {
		var ip ipamv1alpha1.IP
		if err := s.Get(ctx, "liqo", "db", &ip); err != nil || ip.Status.IP == "" {
			return fmt.Errorf("IP %+v, %v", ip.Status, err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind("Configuration"))
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-oslo", Name: "bergen"}, u); err != nil {
			return err
		}
		pod, _, err := unstructured.NestedStringSlice(u.Object, "status", "remote", "cidr", "pod")
		if err != nil || len(pod) != 1 {
			return fmt.Errorf("status %v, %v: want a list", u.Object["status"], err)
		}
		return nil
	})
	s.Apply(mapping("gone", "10.60.1.8", "10.71.0.10")) // Liqo's rules for an IP that went meanwhile
	s.Apply(`{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {name: reserved-198-18-7-0-24, namespace: liqo, annotations: {liqo.io/preinstalled: "true"},
		labels: {liqo.io/managed: "true", ipam.liqo.io/network-type: reserved}}, spec: {cidr: 198.18.7.0/24}}`) // an administrator's
	h, err := s.handBack()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []release.AdoptionStep{
		{Verb: "delete", Object: "FirewallConfiguration liqo/gone-remap-ipmapping-gw", Detail: "it is for an address that was given back meanwhile"},
		{Verb: "update", Object: "Configuration liqo-tenant-oslo/bergen", Detail: "its prefixes become lists, which Liqo's controllers read"},
		{Verb: "replace", Object: "CustomResourceDefinition configurations.networking.liqo.io", Detail: "by Liqo's"},
		{Verb: "delete", Object: "ValidatingAdmissionPolicy liqo-network.sluice.liqo.io"},
		{Verb: "delete", Object: "Network liqo/reserved-198-51-100-0-24", Detail: "its prefix was reserved while Sluice ran the network"},
		{Verb: "delete", Object: "CustomResourceDefinition exportedservices.networking.liqo.io"},
		{Verb: "delete", Object: "ConfigMap liqo/sluice-liqo-crds"},
		{Verb: "hand", Object: "IP liqo/db", Detail: "with its addresses, to Liqo's controllers"},
	} {
		if !slices.Contains(h.Steps, want) {
			t.Errorf("no step %+v among %+v", want, h.Steps)
		}
	}
	// A gateway of our own template cannot be Liqo's.
	s.Apply(`{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, metadata: {name: bergen, namespace: liqo-tenant-oslo, labels: {liqo.io/remote-cluster-id: bergen}},
		spec: {endpoint: {port: 51840, serviceType: ClusterIP}, serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: sluice-wireguard-server, namespace: liqo}}}`)
	if _, err := s.handBack(); err == nil || !strings.Contains(err.Error(), "GatewayServer liqo-tenant-oslo/bergen was made while Sluice ran the network") {
		t.Errorf("a gateway that would be lost: %v", err)
	}
	for _, o := range []string{"-n=liqo-tenant-oslo gatewayserver bergen", "-n=liqo-tenant-oslo configurations.networking.liqo.io bergen", "-n=liqo ips.ipam.liqo.io db",
		"-n=liqo networks.ipam.liqo.io reserved-198-18-7-0-24"} {
		if o == "-n=liqo-tenant-oslo configurations.networking.liqo.io bergen" {
			lists(t, s)
		}
		if _, err := s.Kubectl(append([]string{"delete"}, strings.Fields(o)...)...); err != nil {
			t.Error(err)
		}
	}
	s.gone("bergen")
	s.gone("IP liqo/db")
	// Somebody puts a CRD of a newer version of Liqo in place.
	controlplanetest.Edit(t, s.Cluster, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: newerCRD}}, func(d *apiextensionsv1.CustomResourceDefinition) {
		delete(d.Annotations, release.AnnotationVersion)
		d.Labels = map[string]string{"of": "newer"}
	})
	// And one as 'kubectl apply' does it, which leaves our annotations.
	controlplanetest.Edit(t, s.Cluster, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: appliedCRD}}, func(d *apiextensionsv1.CustomResourceDefinition) {
		delete(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "conditions")
	})
	for _, name := range []string{newerCRD, appliedCRD} {
		want := release.AdoptionStep{Verb: "keep", Object: "CustomResourceDefinition " + name, Detail: "is Liqo's already"}
		if h, err := s.handBack(); err != nil || !slices.Contains(h.Steps, want) {
			t.Errorf("no step %+v: %v", want, err)
		}
	}
}

// newerCRD is a CRD that an upgrade of Liqo replaces while Sluice runs the network, appliedCRD one of an older version.
const (
	newerCRD   = "ips.ipam.liqo.io"
	appliedCRD = "connections.networking.liqo.io"
)

// lists gives the network back while a Configuration has strings, up to where they are lists, and takes it over again.
func lists(t *testing.T, s *takeoverSite) {
	t.Helper()
	s.until(s.back, "Deployment liqo-ipam")
	if out, err := s.Kubectl("-n", "liqo-tenant-oslo", "get", "configurations.networking.liqo.io", "bergen", "-o", "jsonpath={.spec.remote.cidr}{.spec.local.cidr}"); err != nil ||
		out != `{"external":["10.70.0.0/16"],"pod":["10.244.0.0/16"]}{"external":["10.71.0.0/16"],"pod":["10.243.0.0/16"]}` {
		t.Errorf("a Configuration that Liqo's controllers cannot read: %s, %v", out, err)
	}
	s.interrupted(s.forward)
}

// testGivenBack looks whether all is Liqo's again.
func testGivenBack(t *testing.T, s *takeoverSite, original *apiextensionsv1.CustomResourceDefinition) {
	var d apiextensionsv1.CustomResourceDefinition
	s.Read(t, "", original.Name, &d)
	if diff := cmp.Diff(original.Spec, d.Spec); diff != "" {
		t.Errorf("CRD (-before +after)\n%s", diff)
	}
	if diff := cmp.Diff(original.Labels, d.Labels); diff != "" || d.Annotations["networking.liqo.io/crd-version"] != "" {
		t.Errorf("CRD: annotations %v, labels (-before +after)\n%s", d.Annotations, diff)
	}
	var newer apiextensionsv1.CustomResourceDefinition
	s.Read(t, "", newerCRD, &newer)
	if newer.Labels["of"] != "newer" {
		t.Errorf("an older CRD took the place of a newer one of Liqo: labels %v", newer.Labels)
	}
	s.Read(t, "", appliedCRD, &newer)
	if _, version := newer.Annotations[release.AnnotationVersion]; version || len(newer.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"].Type) > 0 {
		t.Errorf("a CRD that Liqo's release has applied is another one: annotations %v", newer.Annotations)
	}
	var agent appsv1.DaemonSet
	s.Read(t, "liqo", "liqo-fabric", &agent)
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux"}, agent.Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("nodes of Liqo's agent (-want +got)\n%s", diff)
	}
	var n ipamv1alpha1.Network
	s.Read(t, "liqo-tenant-milan", "milan-pod", &n)
	n.Labels["of"] = "liqo"
	if err := s.writer().Update(t.Context(), &n, client.DryRunAll); err != nil {
		t.Errorf("Liqo's controllers may not write a Network: %v", err)
	}
	if h, err := s.handBack(); err != nil || !h.Nothing {
		t.Errorf("there is something to give back: %v", err)
	}
	s.nothingNoted()
}
