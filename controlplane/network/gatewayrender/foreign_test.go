package gatewayrender

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const foreignKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pipetemplates.example.org
  labels: {networking.liqo.io/gatewaytemplate: "true"}
spec:
  group: example.org
  names: {kind: PipeTemplate, listKind: PipeTemplateList, plural: pipetemplates, singular: pipetemplate}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pipes.example.org
spec:
  group: example.org
  names: {kind: Pipe, listKind: PipeList, plural: pipes, singular: pipe}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {port: {type: integer}, peer: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const foreignRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pipes}
rules:
- {apiGroups: [example.org], resources: [pipetemplates], verbs: [get, list, watch]}
- {apiGroups: [example.org], resources: [pipes], verbs: [get, list, watch, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pipes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pipes}
subjects: [{kind: ServiceAccount, name: liqo-controller, namespace: liqo}]
`

func pipeTemplate(field, peer string) string {
	return fmt.Sprintf(`
apiVersion: example.org/v1
kind: PipeTemplate
metadata: {name: t}
spec:
  objectKind: {apiVersion: example.org/v1, kind: Pipe}
  template:
    metadata: {name: "{{ .Name }}-pipe"}
    spec: {port: "{{ .Spec.Endpoint.Port }}", %s: %q}
`, field, peer)
}

// testForeign has a kind of templates that comes after the controllers.
func testForeign(t *testing.T, w *world, namespace string) {
	ref := func(s *networkingv1beta1.GatewayServer) {
		s.Spec.ServerTemplateRef.APIVersion, s.Spec.ServerTemplateRef.Kind, s.Spec.ServerTemplateRef.Name = "example.org/v1", "PipeTemplate", "t"
	}
	w.server(t, namespace, "server", ref)
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateKindUnknown, "PipeTemplate")

	w.Apply(foreignKinds)
	if _, err := w.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"); err != nil {
		t.Fatal(err)
	}
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateForbidden, "PipeTemplate", "get, list and watch", "liqo-controller")

	w.Apply(foreignRights)
	w.touch(t, namespace) // or wait a minute
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateNotFound, "PipeTemplate t does not exist")

	w.Apply(pipeTemplate("peer", "{{ .ClusterID }}"))
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered, "PipeTemplate t")
	p := w.pipe(t, namespace, func(p *unstructured.Unstructured) error {
		if peer, _, _ := unstructured.NestedString(p.Object, "spec", "peer"); peer != "consumer" {
			return fmt.Errorf("peer %q", peer)
		}
		return nil
	})
	if p.GetLabels()[networkingv1beta1.LabelManaged] != "true" || p.GetOwnerReferences()[0].Name != "server" {
		t.Errorf("metadata %v", p.Object["metadata"])
	}

	// The template changes, the object's status changes.
	w.Apply(pipeTemplate("peer", "{{ .Name }}"))
	p = w.pipe(t, namespace, func(p *unstructured.Unstructured) error {
		if peer, _, _ := unstructured.NestedString(p.Object, "spec", "peer"); peer != "server" {
			return fmt.Errorf("peer %q", peer)
		}
		return nil
	})
	w.pipeStatus(t, p, map[string]any{"endpoint": map[string]any{"port": int64(7)}})
	eventually(t, w, namespace, "server", new(networkingv1beta1.GatewayServer), func(s *networkingv1beta1.GatewayServer) error {
		if s.Status.Endpoint == nil || s.Status.Endpoint.Port != 7 || s.Status.ServerRef == nil || s.Status.ServerRef.Kind != "Pipe" {
			return fmt.Errorf("status %+v", s.Status)
		}
		return nil
	})
	w.settled(t, &serverKind, namespace, "server")

	// A status that no gateway can have, and fields that the kind does not have.
	w.pipeStatus(t, p, map[string]any{"endpoint": map[string]any{"port": int64(7), "ports": []any{int64(7)}}})
	w.condition(t, namespace, "server", networkingv1beta1.ReasonObjectRefused, "status.endpoint")
	w.pipeStatus(t, p, map[string]any{"endpoint": "none"})
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateInvalid, "Pipe server-pipe has a status that is not one of a gateway")
	w.pipeStatus(t, p, nil)
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)
	w.Apply(pipeTemplate("nothing", "x"))
	w.condition(t, namespace, "server", networkingv1beta1.ReasonObjectRefused, "Pipe server-pipe: ", "nothing")
	w.Apply(pipeTemplate("peer", "x"))
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered)

	// Back to the default template: the object of the other kind goes.
	s := new(networkingv1beta1.GatewayServer)
	w.Read(t, namespace, "server", s)
	before := s.DeepCopy()
	s.Spec.ServerTemplateRef.APIVersion, s.Spec.ServerTemplateRef.Kind = "networking.liqo.io/v1beta1", "WgGatewayServerTemplate"
	s.Spec.ServerTemplateRef.Name = "wireguard-server"
	if err := w.Client.Patch(context.Background(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.condition(t, namespace, "server", networkingv1beta1.ReasonTemplateRendered, "WgGatewayServer server")
	controlplanetest.Eventually(t, "the pipe goes", func(ctx context.Context) error {
		if err := w.Get(ctx, namespace, "server-pipe", emptyPipe()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there (%v)", err)
		}
		return nil
	})

	// The kind of templates goes, and comes back.
	w.server(t, namespace, "other", ref)
	w.condition(t, namespace, "other", networkingv1beta1.ReasonTemplateRendered)
	if _, err := w.Kubectl("delete", "crd", "pipetemplates.example.org"); err != nil {
		t.Fatal(err)
	}
	w.condition(t, namespace, "other", networkingv1beta1.ReasonTemplateKindUnknown)
	if err := w.Get(context.Background(), namespace, "other-pipe", emptyPipe()); err != nil {
		t.Errorf("the object went with its template: %v", err)
	}
	w.Apply(foreignKinds)
	if _, err := w.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"); err != nil {
		t.Fatal(err)
	}
	w.Apply(pipeTemplate("peer", "again"))
	w.condition(t, namespace, "other", networkingv1beta1.ReasonTemplateRendered)
	w.Apply(pipeTemplate("peer", "and again"))
	eventually(t, w, namespace, "other-pipe", emptyPipe(), func(p *unstructured.Unstructured) error {
		if peer, _, _ := unstructured.NestedString(p.Object, "spec", "peer"); peer != "and again" {
			return fmt.Errorf("peer %q", peer)
		}
		return nil
	})
}

func emptyPipe() *unstructured.Unstructured {
	p := new(unstructured.Unstructured)
	p.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pipe"})
	return p
}

// pipe waits for the object of the gateway.
func (w *world) pipe(t *testing.T, namespace string, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	t.Helper()
	return eventually(t, w, namespace, "server-pipe", emptyPipe(), check)
}

func (w *world) pipeStatus(t *testing.T, p *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	controlplanetest.Eventually(t, "the status is written", func(ctx context.Context) error {
		if err := w.Get(ctx, p.GetNamespace(), p.GetName(), p); err != nil {
			return err
		}
		delete(p.Object, "status")
		if status != nil {
			p.Object["status"] = status
		}
		return w.Client.Status().Update(ctx, p)
	})
}

// touch wakes the gateway.
func (w *world) touch(t *testing.T, namespace string) {
	t.Helper()
	if _, err := w.Kubectl("-n", namespace, "label", "--overwrite", "gatewayservers/server", "touched="+fmt.Sprint(metav1.Now().UnixNano())); err != nil {
		t.Fatal(err)
	}
}
