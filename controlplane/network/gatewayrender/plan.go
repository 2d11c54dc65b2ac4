package gatewayrender

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/template"
)

// Facts are what a plan is made of.
type Facts struct {
	// Gateway is the GatewayServer or GatewayClient.
	Gateway *gateway
	// Template is the object that the gateway refers to, or else
	Template *unstructured.Unstructured
	// NoTemplate says why there is none.
	NoTemplate *Problem
	// BesideLiqo says that the network of Liqo was taken over.
	BesideLiqo bool
}

// Problem is something that the user must cure.
type Problem struct {
	// Reason is that of the condition TemplateRendered.
	Reason networkingv1beta1.ConditionReason
	// Message says what to do.
	Message string
}

// Plan says what is to be.
type Plan struct {
	// Object is what the template says; nil if it says nothing that can be.
	Object *unstructured.Unstructured
	// Superseded refers to the object that was made before under another kind or name.
	Superseded *corev1.ObjectReference
	// Template names the template, for messages.
	Template string
	// Problem is why there is no Object.
	Problem *Problem
	// FirstPort is why of several ports the Object has the first only; nil if it has all of them.
	FirstPort *Problem
}

// Build decides what object is to be made of a gateway.
//
//	situation                                       object    TemplateRendered
//	label of the remote cluster missing or invalid  as it is  RemoteClusterIDMissing
//	no such template                                as it is  TemplateNotFound
//	its kind is none of templates                   as it is  TemplateKindUnknown
//	it must not be read                             as it is  TemplateForbidden
//	it is Liqo's, whose network was taken over      as it is  TemplateOfLiqo
//	it does not render, or to what is not allowed   as it is  TemplateInvalid
//	it renders to another kind or name than before  replaced  TemplateRendered
//	else                                            rendered  TemplateRendered
//
// An object that the API server refuses is ObjectRefused, which shows only later.
func Build(f Facts) Plan {
	g := f.Gateway
	cluster := g.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
	if problem := checkClusterID(cluster); problem != nil {
		return Plan{Problem: problem}
	}
	if f.NoTemplate != nil {
		return Plan{Problem: f.NoTemplate}
	}
	p := Plan{Template: fmt.Sprintf("%s %s", f.Template.GetKind(), objectName(f.Template.GetNamespace(), f.Template.GetName()))}
	if f.BesideLiqo && ofLiqo(f.Template) {
		p.Problem = &Problem{networkingv1beta1.ReasonTemplateOfLiqo, fmt.Sprintf(
			"%s is of Liqo's gateway, whose pods need Liqo's controllers, and Sluice runs the network of this cluster: run 'liqoctl network adopt %s', "+
				"which hands the gateway over", p.Template, cluster)}
		return p
	}
	object, err := f.render(cluster)
	if err != nil {
		p.Problem = &Problem{networkingv1beta1.ReasonTemplateInvalid, p.Template + ": " + err.Error()}
		return p
	}
	p.Object, p.FirstPort = object, g.expand(object, p.Template)
	if made := *g.made; made != nil && !refersTo(made, object) {
		p.Superseded = made
	}
	return p
}

func checkClusterID(id string) *Problem {
	const how = "set it to the ID of the remote cluster, the CLUSTER_ID in its ConfigMap liqo-clusterid-configmap"
	if id == "" {
		return &Problem{networkingv1beta1.ReasonRemoteClusterIDMissing, fmt.Sprintf("the label %s is missing: %s", networkingv1beta1.LabelRemoteClusterID, how)}
	}
	if wrong := validation.IsDNS1123Label(id); len(wrong) > 0 {
		return &Problem{networkingv1beta1.ReasonRemoteClusterIDMissing, fmt.Sprintf("the label %s is %q, which no cluster can have as its ID (%s): %s",
			networkingv1beta1.LabelRemoteClusterID, id, wrong[0], how)}
	}
	return nil
}

// ofLiqo tells whether a template makes pods of Liqo's gateway: by its three containers, whoever made it.
func ofLiqo(t *unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(t.Object, "spec", "template", "spec", "deployment", "spec", "template", "spec", "containers")
	found := map[string]bool{}
	for _, c := range containers {
		if m, ok := c.(map[string]any); ok {
			name, _ := m["name"].(string)
			found[name] = true
		}
	}
	return found["gateway"] && found["wireguard"] && found["geneve"]
}

// shape is what is rendered of an object of an unknown kind: its metadata is text.
type shape struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     map[string]any    `json:"spec"`
}

// render makes the object of the template.
func (f Facts) render(cluster string) (*unstructured.Unstructured, error) {
	g := f.Gateway
	gvk, like, err := f.objectKind()
	if err != nil {
		return nil, err
	}
	source, err := templateOf(f.Template)
	if err != nil {
		return nil, err
	}
	content, err := template.Render(source, template.Vars{
		Spec: g.spec, Name: g.GetName(), Namespace: g.GetNamespace(), GatewayUID: string(g.GetUID()), ClusterID: cluster, SecretName: g.secretName,
	}, like)
	if err != nil {
		return nil, fmt.Errorf("spec.template.%w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	if u.GetName() == "" {
		u.SetName(g.GetName())
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(g.GetNamespace())
	}
	if u.GetNamespace() != g.GetNamespace() {
		return nil, fmt.Errorf("spec.template.metadata.namespace: is %q, but the object must be where the gateway is, in %q", u.GetNamespace(), g.GetNamespace())
	}
	u.SetLabels(labels.Merge(u.GetLabels(), map[string]string{
		networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: cluster,
	}))
	u.SetOwnerReferences([]metav1.OwnerReference{g.owner()})
	return u, mergeService(content, g)
}

// objectKind is the kind that is to be made, and what its objects look like.
func (f Facts) objectKind() (gvk schema.GroupVersionKind, like any, err error) {
	path := "spec.objectKind"
	apiVersion, _, _ := unstructured.NestedString(f.Template.Object, "spec", "objectKind", "apiVersion")
	name, _, _ := unstructured.NestedString(f.Template.Object, "spec", "objectKind", "kind")
	if apiVersion == "" || name == "" {
		return gvk, nil, fmt.Errorf("%s: apiVersion and kind are required", path)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return gvk, nil, fmt.Errorf("%s.apiVersion: %w", path, err)
	}
	gvk = gv.WithKind(name)
	own := f.Gateway.kind.own()
	switch {
	case gvk == own:
		return gvk, f.Gateway.kind.newObject(), nil
	case apply.OfNetwork(gv.Group):
		return gvk, nil, fmt.Errorf("%s: of %s the kind that a %s is made of is %s, %s", path, gv.Group, f.Gateway.kind.name, own.GroupVersion(), own.Kind)
	case !strings.Contains(gv.Group, ".") || gv.Group == "k8s.io" || strings.HasSuffix(gv.Group, ".k8s.io"):
		return gvk, nil, fmt.Errorf("%s: %s %s is a kind of Kubernetes: a gateway is made of a custom resource", path, apiVersion, name)
	}
	return gvk, shape{}, nil
}

// templateOf returns what is to be rendered.
func templateOf(t *unstructured.Unstructured) (map[string]any, error) {
	source, found, err := unstructured.NestedMap(t.Object, "spec", "template")
	if err != nil || !found {
		return nil, fmt.Errorf("spec.template: is required")
	}
	for key := range source {
		if key != "metadata" && key != "spec" {
			return nil, fmt.Errorf("spec.template.%s: only metadata and spec can be given", key)
		}
	}
	switch metadata := source["metadata"].(type) {
	case nil:
		delete(source, "metadata")
	case map[string]any:
		for key, v := range metadata {
			switch strings.TrimPrefix(key, "?") {
			case "name", "namespace", "labels", "annotations":
			default:
				if v != nil { // as tools write creationTimestamp
					return nil, fmt.Errorf("spec.template.metadata.%s: only name, namespace, labels and annotations can be given", key)
				}
				delete(metadata, key)
			}
		}
	default:
		return nil, fmt.Errorf("spec.template.metadata: is no map")
	}
	if _, ok := source["spec"].(map[string]any); !ok {
		return nil, fmt.Errorf("spec.template.spec: is required")
	}
	return source, nil
}

// mergeService adds the labels and annotations that the gateway wants on its
// Service, if there is one.
func mergeService(content map[string]any, g *gateway) error {
	if _, found, err := unstructured.NestedMap(content, "spec", "service"); err != nil || !found {
		return nil // an object without Service
	}
	for key, wanted := range map[string]map[string]string{"labels": g.serviceLabels, "annotations": g.serviceAnnotations} {
		if len(wanted) == 0 {
			continue
		}
		given, _, err := unstructured.NestedStringMap(content, "spec", "service", "metadata", key)
		if err != nil {
			return fmt.Errorf("spec.template.spec.service.metadata.%s: is no map of strings", key)
		}
		if err := unstructured.SetNestedStringMap(content, labels.Merge(given, wanted), "spec", "service", "metadata", key); err != nil {
			return fmt.Errorf("spec.template.spec.service.metadata: is no map")
		}
	}
	return nil
}

// refersTo tells whether ref is to an object of this kind and name.
func refersTo(ref *corev1.ObjectReference, u *unstructured.Unstructured) bool {
	return ref.GroupVersionKind().GroupKind() == u.GroupVersionKind().GroupKind() && ref.Name == u.GetName()
}

func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
