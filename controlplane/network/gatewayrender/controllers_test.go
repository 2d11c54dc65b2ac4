package gatewayrender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

func TestControllers(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), reconcilers: make(map[*kind]*reconciler)}
	w.RunManager(t, func(mgr ctrl.Manager) error {
		rs, err := newReconcilers(mgr, Options{LiqoNamespace: controlplanetest.LiqoNamespace})
		if err != nil {
			return err
		}
		w.client = &controlplanetest.Counting{Client: rs[0].Client}
		for _, r := range rs {
			r.Client = w.client
			w.reconcilers[r.kind] = r
			if err := r.setup(mgr); err != nil {
				return err
			}
		}
		return nil
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world, string)
	}{
		{"documents", testDocuments},
		{"restricted", testRestricted},
		{"status", testStatus},
		{"empty-fields", testEmptyFields},
		{"template-change", testTemplateChange},
		{"three-way", testThreeWay},
		{"bad-input", testBadInput},
		{"ports", testPorts},
		{"foreign", testForeign},
		{"recreated", testRecreated},
		{"deleted", testDeleted},
		{"somebody-elses", testSomebodyElses},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.Namespace(t, test.name, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
			test.run(t, w, test.name)
		})
	}
}

// testDocuments applies the documents' own gateways.
func testDocuments(t *testing.T, w *world, namespace string) {
	d := document.Read(t, document.Declarative)
	w.Apply(d.Block(t, []string{"kind: GatewayServer\n"}, "CONSUMER_CLUSTER_ID", "consumer", "PROVIDER_TENANT_NAMESPACE", namespace, "WIREGUARD_KEYS_SECRET_NAME", "gw-keys"))
	w.Apply(d.Block(t, []string{"kind: GatewayClient\n"}, "PROVIDER_CLUSTER_ID", "provider", "CONSUMER_TENANT_NAMESPACE", namespace,
		"WIREGUARD_KEYS_SECRET_NAME", "gw-keys", "REMOTE_IP", "192.0.2.7"))
	s := w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered, "WgGatewayServerTemplate liqo/wireguard-server")
	o := eventually(t, w, namespace, "server", new(networkingv1beta1.WgGatewayServer), func(*networkingv1beta1.WgGatewayServer) error { return nil })
	if o.Spec.SecretRef.Name != "gw-keys" || o.Spec.Service.Spec.Ports[0].NodePort != 30742 || o.Spec.Service.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("spec of the document is lost: %+v", o.Spec)
	}
	if o.Labels[networkingv1beta1.LabelManaged] != "true" || o.Labels[networkingv1beta1.LabelRemoteClusterID] != "consumer" || !metav1.IsControlledBy(o, s) {
		t.Errorf("labels %v, owners %v", o.Labels, o.OwnerReferences)
	}
	c := eventually(t, w, namespace, "client", new(networkingv1beta1.GatewayClient), func(c *networkingv1beta1.GatewayClient) error {
		if c.Status.ClientRef == nil || c.Status.ClientRef.UID == "" {
			return errors.New("no clientRef")
		}
		return nil
	})
	want := &corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayClient", Name: "client", Namespace: namespace, UID: c.Status.ClientRef.UID}
	if diff := cmp.Diff(want, c.Status.ClientRef); diff != "" {
		t.Errorf("clientRef (-want +got):\n%s", diff)
	}
	w.settled(t, &serverKind, namespace, "server")
	w.settled(t, &clientKind, namespace, "client")
	w.Event(t, namespace, "server", "TemplateRendered", corev1.EventTypeNormal)
}

// testRestricted checks the pods of the default templates against PodSecurity.
func testRestricted(t *testing.T, w *world, namespace string) {
	s := testServer(func(s *networkingv1beta1.GatewayServer) { s.Namespace = namespace })
	c := &networkingv1beta1.GatewayClient{ObjectMeta: s.ObjectMeta, Spec: networkingv1beta1.GatewayClientSpec{Endpoint: networkingv1beta1.Endpoint{Port: 1}}}
	server := strictly[networkingv1beta1.WgGatewayServer](t, renderShipped(t, serverKind.gatewayOf(s)))
	other := strictly[networkingv1beta1.WgGatewayClient](t, renderShipped(t, clientKind.gatewayOf(c)))
	for name, d := range map[string]*networkingv1beta1.DeploymentTemplate{"server": &server.Spec.Deployment, "client": &other.Spec.Deployment} {
		if err := w.Client.Create(context.Background(), podOf(d, namespace, name), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		pod := podOf(d, namespace, name)
		pod.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		if err := w.Client.Create(context.Background(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s with NET_ADMIN: %v, want it to be forbidden here", name, err)
		}
	}
}

// testStatus plays the controller of WgGatewayServers.
func testStatus(t *testing.T, w *world, namespace string) {
	s := w.server(t, namespace, "server", nil)
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	o := new(networkingv1beta1.WgGatewayServer)
	w.Read(t, namespace, "server", o)
	write := func(change func(*networkingv1beta1.WgGatewayServerStatus)) {
		t.Helper()
		before := o.DeepCopy()
		change(&o.Status)
		if err := w.Client.Status().Patch(context.Background(), o, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	write(func(status *networkingv1beta1.WgGatewayServerStatus) {
		status.Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8"}, Port: 32009, Protocol: corev1.ProtocolUDP}
		status.InternalEndpoint = &networkingv1beta1.InternalEndpoint{IP: "10.0.0.7", Node: "n1"}
		status.SecretRef = &corev1.ObjectReference{Name: "gw-server", Namespace: namespace}
		for _, c := range copied {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: string(c), Status: metav1.ConditionTrue, Reason: "Fine", ObservedGeneration: o.Generation})
		}
	})
	s = eventually(t, w, namespace, "server", s, func(s *networkingv1beta1.GatewayServer) error {
		if s.Status.Endpoint == nil || s.Status.ServerRef.UID != o.UID {
			return fmt.Errorf("status %+v", s.Status)
		}
		return nil
	})
	if diff := cmp.Diff([]any{o.Status.Endpoint, o.Status.InternalEndpoint, o.Status.SecretRef}, []any{s.Status.Endpoint, s.Status.InternalEndpoint, s.Status.SecretRef}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range copied {
		if got := meta.FindStatusCondition(s.Status.Conditions, string(c)); got == nil || got.Status != metav1.ConditionTrue || got.ObservedGeneration != s.Generation {
			t.Errorf("%s: %+v", c, got)
		}
	}
	out, err := w.Kubectl("get", "gatewayservers", "-n", namespace)
	if err != nil || !strings.Contains(out, "172.19.0.8") || !strings.Contains(out, "32009") {
		t.Errorf("kubectl shows %s (%v)", out, err)
	}
	w.settled(t, &serverKind, namespace, "server")
	write(func(status *networkingv1beta1.WgGatewayServerStatus) { status.Endpoint.SetPorts([]int32{32009, 32010}) })
	controlplanetest.Eventually(t, "kubectl shows the ports of all tunnels", func(context.Context) error {
		if out, err := w.Kubectl("get", "gatewayservers", "-n", namespace); err != nil || !strings.Contains(out, " [32009,32010] ") {
			return fmt.Errorf("%s (%v)", out, err)
		}
		return nil
	})
	// A condition that goes away goes away here, and nothing else does.
	write(func(status *networkingv1beta1.WgGatewayServerStatus) {
		meta.RemoveStatusCondition(&status.Conditions, string(networkingv1beta1.ConditionPeerKeyReady))
	})
	eventually(t, w, namespace, "server", s, func(s *networkingv1beta1.GatewayServer) error {
		if c := s.Status.Conditions; meta.FindStatusCondition(c, "PeerKeyReady") != nil || len(c) != 4 {
			return fmt.Errorf("conditions %v", c)
		}
		return nil
	})
}

// testEmptyFields: a template may render fields that are empty, as Liqo's do, which no object keeps. Such an object is written
// once, so that what it says holds for the newest gateway.
func testEmptyFields(t *testing.T, w *world, namespace string) {
	w.shippedCopy(t, &serverKind, namespace, func(m map[string]any) {
		_ = unstructured.SetNestedField(m, map[string]any{"name": "{{ .Spec.SecretRef.Name }}"}, "spec", "secretRef")
		_ = unstructured.SetNestedField(m, false, "spec", "deployment", "spec", "template", "spec", "hostPID")
	})
	w.server(t, namespace, "server", mine(namespace))
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	o := new(networkingv1beta1.WgGatewayServer)
	w.Read(t, namespace, "server", o)
	before := o.DeepCopy()
	for _, c := range copied {
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: string(c), Status: metav1.ConditionTrue, Reason: "Fine", ObservedGeneration: o.Generation})
	}
	if err := w.Client.Status().Patch(context.Background(), o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually(t, w, namespace, "server", new(networkingv1beta1.GatewayServer), func(s *networkingv1beta1.GatewayServer) error {
		for _, c := range copied {
			if got := meta.FindStatusCondition(s.Status.Conditions, string(c)); got == nil || got.ObservedGeneration != s.Generation {
				return fmt.Errorf("generation %d, %s: %+v", s.Generation, c, got)
			}
		}
		return nil
	})
	w.settled(t, &serverKind, namespace, "server")
}

func testTemplateChange(t *testing.T, w *world, namespace string) {
	w.shippedCopy(t, &serverKind, namespace, nil)
	w.server(t, namespace, "server", mine(namespace))
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	w.edit(t, &serverKind, namespace, func(m map[string]any) {
		_ = unstructured.SetNestedField(m, int64(2), "spec", "deployment", "spec", "replicas")
	})
	eventually(t, w, namespace, "server", new(networkingv1beta1.WgGatewayServer), func(o *networkingv1beta1.WgGatewayServer) error {
		if *o.Spec.Deployment.Spec.Replicas != 2 {
			return fmt.Errorf("%d replicas", *o.Spec.Deployment.Spec.Replicas)
		}
		return nil
	})
	// A mistake in the template changes nothing but the condition.
	w.edit(t, &serverKind, namespace, func(m map[string]any) {
		_ = unstructured.SetNestedField(m, "{{ .Spec.ExtraConfig }}", "spec", "deployment", "spec", "replicas")
	})
	s := w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateInvalid,
		"WgGatewayServerTemplate "+namespace+"/mine: spec.template.spec.deployment.spec.replicas: ", "ExtraConfig")
	if s.Status.ServerRef == nil {
		t.Error("serverRef is lost")
	}
	if err := w.Get(context.Background(), namespace, "server", new(networkingv1beta1.WgGatewayServer)); err != nil {
		t.Error(err)
	}
	w.Event(t, namespace, "server", "TemplateInvalid", corev1.EventTypeWarning)
	w.settled(t, &serverKind, namespace, "server")
}

func testThreeWay(t *testing.T, w *world, namespace string) {
	label := func(value string) func(map[string]any) {
		return func(m map[string]any) {
			if value == "" {
				unstructured.RemoveNestedField(m, "metadata", "labels")
				return
			}
			_ = unstructured.SetNestedField(m, map[string]any{"template": value}, "metadata", "labels")
		}
	}
	w.shippedCopy(t, &serverKind, namespace, label("1"))
	w.server(t, namespace, "server", mine(namespace))
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)

	// Somebody adds a label and changes what the template says.
	if _, err := w.Kubectl("-n", namespace, "label", "wggatewayservers/server", "user=1"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Kubectl("-n", namespace, "patch", "wggatewayservers/server", "--type=merge", "-p", `{"metadata":{"labels":{"template":"user"}},"spec":{"deployment":{"spec":{"replicas":9}}}}`); err != nil {
		t.Fatal(err)
	}
	check := func(template string) {
		t.Helper()
		eventually(t, w, namespace, "server", new(networkingv1beta1.WgGatewayServer), func(o *networkingv1beta1.WgGatewayServer) error {
			if o.Labels["user"] != "1" || o.Labels["template"] != template || *o.Spec.Deployment.Spec.Replicas != 1 {
				return fmt.Errorf("labels %v, %d replicas", o.Labels, *o.Spec.Deployment.Spec.Replicas)
			}
			return nil
		})
	}
	check("1")
	w.edit(t, &serverKind, namespace, label("2"))
	check("2")
	w.edit(t, &serverKind, namespace, label(""))
	check("")
	w.settled(t, &serverKind, namespace, "server")

	// Deleted by hand, it comes back, without what somebody else added.
	if _, err := w.Kubectl("-n", namespace, "delete", "wggatewayservers/server"); err != nil {
		t.Fatal(err)
	}
	eventually(t, w, namespace, "server", new(networkingv1beta1.WgGatewayServer), func(o *networkingv1beta1.WgGatewayServer) error {
		if o.Labels["user"] != "" || !o.DeletionTimestamp.IsZero() {
			return errors.New("still the old one")
		}
		return nil
	})
}

func testBadInput(t *testing.T, w *world, namespace string) {
	w.shippedCopy(t, &serverKind, namespace, func(m map[string]any) {
		containers, _, _ := unstructured.NestedSlice(m, "spec", "deployment", "spec", "template", "spec", "containers")
		delete(containers[0].(map[string]any), "name")
		_ = unstructured.SetNestedSlice(m, containers, "spec", "deployment", "spec", "template", "spec", "containers")
	})
	for _, tt := range []struct {
		name   string
		change func(*networkingv1beta1.GatewayServer)
		reason networkingv1beta1.ConditionReason
		parts  []string
	}{
		{"unlabelled", func(s *networkingv1beta1.GatewayServer) { s.Labels = nil }, networkingv1beta1.ReasonRemoteClusterIDMissing, []string{"liqo.io/remote-cluster-id"}},
		{"mislabelled", func(s *networkingv1beta1.GatewayServer) { s.Labels[networkingv1beta1.LabelRemoteClusterID] = "A_B" }, networkingv1beta1.ReasonRemoteClusterIDMissing, []string{`"A_B"`}},
		{"no-template", func(s *networkingv1beta1.GatewayServer) { s.Spec.ServerTemplateRef.Name = "none" }, networkingv1beta1.ReasonTemplateNotFound,
			[]string{"WgGatewayServerTemplate liqo/none does not exist", "spec.serverTemplateRef"}},
		{"no-kind", func(s *networkingv1beta1.GatewayServer) { s.Spec.ServerTemplateRef.Kind = "Nothing" }, networkingv1beta1.ReasonTemplateKindUnknown, []string{"Nothing"}},
		{"no-version", func(s *networkingv1beta1.GatewayServer) {
			s.Spec.ServerTemplateRef.APIVersion = "networking.liqo.io/v9"
		}, networkingv1beta1.ReasonTemplateKindUnknown, []string{"networking.liqo.io/v9"}},
		{"no-template-kind", func(s *networkingv1beta1.GatewayServer) { s.Spec.ServerTemplateRef.Kind = "Configuration" }, networkingv1beta1.ReasonTemplateKindUnknown,
			[]string{"networking.liqo.io/gatewaytemplate=true"}},
		{"of-clients", func(s *networkingv1beta1.GatewayServer) {
			s.Spec.ServerTemplateRef.Kind, s.Spec.ServerTemplateRef.Name = "WgGatewayClientTemplate", "wireguard-client"
		}, networkingv1beta1.ReasonTemplateInvalid, []string{"WgGatewayClientTemplate liqo/wireguard-client: spec.objectKind: "}},
		{"refused", mine(namespace), networkingv1beta1.ReasonObjectRefused, []string{"WgGatewayServer refused: ", "spec.deployment.spec.template.spec.containers: element 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.server(t, namespace, tt.name, tt.change)
			w.condition(t, namespace, tt.name, tt.reason, tt.parts...)
			if err := w.Get(context.Background(), namespace, tt.name, new(networkingv1beta1.WgGatewayServer)); !apierrors.IsNotFound(err) {
				t.Errorf("there is an object (%v)", err)
			}
			w.Event(t, namespace, tt.name, string(tt.reason), corev1.EventTypeWarning)
			if tt.reason != networkingv1beta1.ReasonObjectRefused { // which is tried again
				w.settled(t, &serverKind, namespace, tt.name)
			}
		})
	}
	// What was wrong is put right.
	if _, err := w.Kubectl("-n", namespace, "label", "gatewayservers/unlabelled", "liqo.io/remote-cluster-id=consumer"); err != nil {
		t.Fatal(err)
	}
	w.condition(t, namespace, "unlabelled", networkingv1beta1.ReasonTemplateRendered)
	// The label of the kind comes late.
	w.server(t, namespace, "late", func(s *networkingv1beta1.GatewayServer) { s.Spec.ServerTemplateRef.Namespace = "" })
	w.condition(t, namespace, "late", networkingv1beta1.ReasonTemplateRendered, "liqo/wireguard-server")
	crd := "crd/wggatewayservertemplates.networking.liqo.io"
	if _, err := w.Kubectl("label", crd, networkingv1beta1.LabelGatewayTemplate+"-"); err != nil {
		t.Fatal(err)
	}
	w.condition(t, namespace, "late", networkingv1beta1.ReasonTemplateKindUnknown)
	if _, err := w.Kubectl("label", crd, networkingv1beta1.LabelGatewayTemplate+"=true"); err != nil {
		t.Fatal(err)
	}
	w.condition(t, namespace, "late", networkingv1beta1.ReasonTemplateRendered)
}

func testPorts(t *testing.T, w *world, namespace string) {
	w.server(t, namespace, "server", func(s *networkingv1beta1.GatewayServer) {
		s.Spec.Endpoint.Port, s.Spec.Endpoint.Ports = 0, []int32{500, 501}
		s.Spec.ServiceAnnotations, s.Spec.ServiceLabels = map[string]string{"a": "1"}, map[string]string{"b": "2"}
	})
	s := w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	if c := meta.FindStatusCondition(s.Status.Conditions, "AllPortsServed"); c != nil {
		t.Errorf("AllPortsServed: %+v", c)
	}
	o := new(networkingv1beta1.WgGatewayServer)
	w.Read(t, namespace, "server", o)
	if p := o.Spec.Service.Spec.Ports; len(p) != 2 || p[0].Port != 500 || p[0].Name != "wireguard" || p[1].Port != 501 || p[1].Name != "wireguard-501" {
		t.Errorf("ports %v", p)
	}
	if got := o.Annotations[networkingv1beta1.AnnotationTunnelPorts]; got != "500,501" {
		t.Errorf("tunnels %q", got)
	}
	if m := o.Spec.Service.Metadata; m.Annotations["a"] != "1" || m.Labels["b"] != "2" {
		t.Errorf("metadata %v", m)
	}
	w.settled(t, &serverKind, namespace, "server")
	// Back to one.
	if _, err := w.Kubectl("-n", namespace, "patch", "gatewayservers/server", "--type=merge", "-p", `{"spec":{"endpoint":{"port":500,"ports":null}}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, w, namespace, "server", o, func(o *networkingv1beta1.WgGatewayServer) error {
		p, containers := o.Spec.Service.Spec.Ports, o.Spec.Deployment.Spec.Template.Spec.Containers[0].Ports
		if _, noted := o.Annotations[networkingv1beta1.AnnotationTunnelPorts]; len(p) != 1 || p[0].Name != "wireguard" || noted || len(containers) != 4 {
			return fmt.Errorf("ports %v, %v, annotations %v", p, containers, o.Annotations)
		}
		return nil
	})
	// A template whose Service is of other ports has no place for several.
	w.shippedCopy(t, &serverKind, namespace, func(m map[string]any) {
		ports, _, _ := unstructured.NestedSlice(m, "spec", "service", "spec", "ports")
		ports[0].(map[string]any)["port"] = int64(443)
		_ = unstructured.SetNestedSlice(m, ports, "spec", "service", "spec", "ports")
	})
	w.server(t, namespace, "fixed", func(s *networkingv1beta1.GatewayServer) {
		mine(namespace)(s)
		s.Spec.Endpoint.Port, s.Spec.Endpoint.Ports = 0, []int32{500, 501}
	})
	s = w.condition(t, namespace, "fixed", networkingv1beta1.ReasonTemplateRendered)
	c := meta.FindStatusCondition(s.Status.Conditions, "AllPortsServed")
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "FirstPortOnly" || !strings.Contains(c.Message, "WgGatewayServerTemplate "+namespace+"/mine has no port of protocol UDP") {
		t.Errorf("AllPortsServed: %+v", c)
	}
	w.Event(t, namespace, "fixed", "FirstPortOnly", corev1.EventTypeWarning)
}

func testRecreated(t *testing.T, w *world, namespace string) {
	first := w.server(t, namespace, "server", nil)
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	w.Delete(t, first)
	second := w.server(t, namespace, "server", nil)
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	eventually(t, w, namespace, "server", new(networkingv1beta1.WgGatewayServer), func(o *networkingv1beta1.WgGatewayServer) error {
		if !metav1.IsControlledBy(o, second) {
			return fmt.Errorf("belongs to %v", o.OwnerReferences)
		}
		return nil
	})
}

func testDeleted(t *testing.T, w *world, namespace string) {
	s := w.server(t, namespace, "server", nil)
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	if len(s.Finalizers) > 0 {
		t.Errorf("finalizers %v", s.Finalizers)
	}
	w.Delete(t, s)
	w.Gone(t, &networkingv1beta1.WgGatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "server"}})
}

func testSomebodyElses(t *testing.T, w *world, namespace string) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "operator"}}
	w.Create(t, owner)
	u := renderShipped(t, serverKind.gatewayOf(testServer(func(s *networkingv1beta1.GatewayServer) { s.Namespace = namespace })))
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)}})
	w.Create(t, u)
	w.server(t, namespace, "server", nil)
	s := w.condition(t, namespace, "server", networkingv1beta1.ReasonObjectRefused, "belongs to ConfigMap operator")
	if s.Status.ServerRef != nil {
		t.Errorf("serverRef %v", s.Status.ServerRef)
	}
	// One that was written by hand is nobody's to overwrite, either.
	byHand := u.DeepCopy()
	byHand.SetName("by-hand")
	byHand.SetResourceVersion("")
	byHand.SetOwnerReferences(nil)
	byHand.SetLabels(map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan"})
	w.Create(t, byHand)
	w.server(t, namespace, "by-hand", nil)
	w.condition(t, namespace, "by-hand", networkingv1beta1.ReasonObjectRefused, "was not rendered")
	live := new(networkingv1beta1.WgGatewayServer)
	if err := w.Get(context.Background(), namespace, "by-hand", live); err != nil || live.ResourceVersion != byHand.GetResourceVersion() {
		t.Errorf("it was written to: %v (%v)", live.ObjectMeta, err)
	}
}
