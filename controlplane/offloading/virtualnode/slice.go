package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// Reasons of events about ResourceSlices.
const (
	// ReasonWaiting means that a step is missing before there is a VirtualNode.
	ReasonWaiting = "VirtualNodeWaiting"
	// ReasonNameTaken means that there is a VirtualNode or a Node of that name that is somebody else's.
	ReasonNameTaken = "VirtualNodeNameTaken"
	// ReasonLabelsLeftOut means that the provider wants labels for the node that it may not choose.
	ReasonLabelsLeftOut = "NodeLabelsLeftOut"
)

// maxLabels is how many labels a provider may give to a node, and maxClasses how many classes of a kind it may offer.
const (
	maxLabels  = 64
	maxClasses = 64
)

// wantsNode tells whether a slice of this cluster asks for a virtual node.
func wantsNode(s *authv1beta1.ResourceSlice) bool {
	v := s.Annotations[authv1beta1.AnnotationCreateVirtualNode]
	return v != "" && v != "false" && s.DeletionTimestamp.IsZero() && s.Labels[authv1beta1.LabelReplication] == networkingv1beta1.LabelTrue &&
		s.Labels[authv1beta1.LabelReplicationOrigin] == "" && s.Labels[authv1beta1.LabelReplicationDestination] != ""
}

// FromSlice decides on the VirtualNode of a slice. It is nil while a step is missing, which is then named. A VirtualNode
// that is there stays when a provider changes its mind.
//
//	conditions of the slice                Secret with the kubeconfig     VirtualNode
//	Authentication missing or Denied       whatever                       -, the step
//	Resources missing or Denied            whatever                       -, the step
//	both Accepted                          none, or empty                 -, the step
//	both Accepted                          there                          made, or brought up to date
func FromSlice(s *authv1beta1.ResourceSlice, secrets []corev1.Secret) (v *offloadingv1beta1.VirtualNode, missing string) {
	for _, of := range []authv1beta1.ResourceSliceConditionType{authv1beta1.SliceAuthentication, authv1beta1.SliceResources} {
		i := slices.IndexFunc(s.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == of })
		switch {
		case i < 0:
			return nil, fmt.Sprintf("the provider has not answered yet: the condition %s is missing", of)
		case s.Status.Conditions[i].Status != authv1beta1.SliceAccepted:
			return nil, fmt.Sprintf("the provider denies %s: %s", of, text.Cut(s.Status.Conditions[i].Message, 200))
		}
	}
	var ready []string
	for i := range secrets {
		o := &secrets[i]
		if o.Namespace == s.Namespace && o.Labels[authv1beta1.LabelIdentityType] == string(authv1beta1.ResourceSliceIdentity) &&
			o.Labels[authv1beta1.LabelResourceSliceName] == s.Name && len(o.Data[authv1beta1.KubeconfigKey]) > 0 {
			ready = append(ready, o.Name)
		}
	}
	if len(ready) == 0 {
		return nil, fmt.Sprintf("there is no Secret with a kubeconfig for the slice: with the labels %s=%s and %s=%s",
			authv1beta1.LabelIdentityType, authv1beta1.ResourceSliceIdentity, authv1beta1.LabelResourceSliceName, s.Name)
	}
	peer := s.Labels[authv1beta1.LabelReplicationDestination]
	granted, _ := NodeLabels(s.Status.NodeLabels)
	v = &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: peer,
				authv1beta1.LabelResourceSliceName: s.Name,
			},
			OwnerReferences: apply.Controller(s, authv1beta1.GroupVersion.WithKind("ResourceSlice")),
		},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID: offloadingv1beta1.ClusterID(peer), CreateNode: new(true),
			KubeconfigSecretRef: &corev1.LocalObjectReference{Name: slices.Min(ready)},
			ResourceQuota:       corev1.ResourceQuotaSpec{Hard: capacity(s.Status.Resources)},
			Labels:              granted,
		},
	}
	if len(s.Status.NodeSelector) > 0 {
		v.Spec.OffloadingPatch = &offloadingv1beta1.OffloadingPatch{NodeSelector: s.Status.NodeSelector}
	}
	offer(&v.Spec, &s.Status)
	return v, ""
}

// offer takes over the classes of a provider, but what is no name of one.
func offer(to *offloadingv1beta1.VirtualNodeSpec, from *authv1beta1.ResourceSliceStatus) {
	for _, c := range from.StorageClasses {
		if len(to.StorageClasses) < maxClasses && len(validation.IsDNS1123Subdomain(c.StorageClassName)) == 0 {
			to.StorageClasses = append(to.StorageClasses, offloadingv1beta1.StorageClass{StorageClassName: c.StorageClassName, Default: c.Default})
		}
	}
	for _, c := range from.IngressClasses {
		if len(to.IngressClasses) < maxClasses && len(validation.IsDNS1123Subdomain(c.IngressClassName)) == 0 {
			to.IngressClasses = append(to.IngressClasses, offloadingv1beta1.IngressClass{IngressClassName: c.IngressClassName, Default: c.Default})
		}
	}
	for _, c := range from.LoadBalancerClasses {
		if len(to.LoadBalancerClasses) < maxClasses && len(validation.IsQualifiedName(c.LoadBalancerClassName)) == 0 {
			to.LoadBalancerClasses = append(to.LoadBalancerClasses, offloadingv1beta1.LoadBalancerClass{LoadBalancerClassName: c.LoadBalancerClassName, Default: c.Default})
		}
	}
}

// capacity leaves out what no node has: a provider is not trusted with the status of a Node.
func capacity(granted corev1.ResourceList) corev1.ResourceList {
	kept := corev1.ResourceList{}
	for name, q := range granted {
		if q.Sign() >= 0 && len(validation.IsQualifiedName(string(name))) == 0 {
			kept[name] = q
		}
	}
	return kept
}

// mayChoose are the labels of Kubernetes that say where a cluster is.
var mayChoose = []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone}

// NodeLabels leaves out the labels that a provider may not choose: those by which Kubernetes and the controllers tell what
// a node is, and what is no label. leftOut are their keys, fit for a message.
func NodeLabels(wanted map[string]string) (kept map[string]string, leftOut []string) {
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		domain, _, _ := strings.Cut(key, "/")
		if !strings.Contains(key, "/") {
			domain = ""
		}
		reserved := domain == "kubernetes.io" || domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") ||
			domain == "storage.liqo.io" || key == networkingv1beta1.LabelNodeType || key == networkingv1beta1.LabelRemoteClusterID || key == networkingv1beta1.LabelManaged
		switch {
		case reserved && !slices.Contains(mayChoose, key), len(validation.IsQualifiedName(key)) > 0, len(validation.IsValidLabelValue(wanted[key])) > 0, len(kept) == maxLabels:
			leftOut = append(leftOut, text.Quoted(key))
		default:
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = wanted[key]
		}
	}
	return kept, leftOut
}

// slicer makes VirtualNodes of slices.
type slicer struct {
	client.Client
	// Secrets sees those of peerings.
	Secrets  client.Reader
	Recorder events.EventRecorder
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one slice.
func (r *slicer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(authv1beta1.ResourceSlice)
	if err := r.Get(ctx, req.NamespacedName, s); err != nil || !wantsNode(s) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var secrets corev1.SecretList
	if err := r.Secrets.List(ctx, &secrets, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	v, missing := FromSlice(s, secrets.Items)
	if v == nil {
		apply.Event(r.Recorder, s, corev1.EventTypeNormal, ReasonWaiting, "CreateVirtualNode", missing)
		return ctrl.Result{}, nil
	}
	taken, err := r.taken(ctx, v)
	if err != nil {
		return ctrl.Result{}, err
	}
	if taken != "" {
		apply.Event(r.Recorder, s, corev1.EventTypeWarning, ReasonNameTaken, "CreateVirtualNode", taken)
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	if _, leftOut := NodeLabels(s.Status.NodeLabels); len(leftOut) > 0 {
		apply.Event(r.Recorder, s, corev1.EventTypeWarning, ReasonLabelsLeftOut, "CreateVirtualNode",
			"the node does not get these labels of the provider, which it may not choose: "+strings.Join(leftOut, ", "))
	}
	_, err = apply.Object(ctx, r.Client, nil, v)
	if theirs := new(apply.ForeignError); errors.As(err, &theirs) {
		apply.Event(r.Recorder, s, corev1.EventTypeWarning, ReasonNameTaken, "CreateVirtualNode", theirs.Error())
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	if apply.NamespaceEnds(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// taken tells who has the name of the node: names of nodes are those of the whole cluster.
func (r *slicer) taken(ctx context.Context, v *offloadingv1beta1.VirtualNode) (string, error) {
	var others offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &others, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	for i := range others.Items {
		if o := &others.Items[i]; o.Name == v.Name && o.Namespace != v.Namespace {
			return fmt.Sprintf("namespace %s has a VirtualNode %s, and there can be one Node of that name: name the slice otherwise", o.Namespace, o.Name), nil
		}
	}
	n := new(corev1.Node)
	if err := r.Get(ctx, client.ObjectKey{Name: v.Name}, n); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if n.Labels[networkingv1beta1.LabelRemoteClusterID] != string(v.Spec.ClusterID) {
		return fmt.Sprintf("there is a Node %s that does not stand for cluster %s: name the slice otherwise", n.Name, v.Spec.ClusterID), nil
	}
	return "", nil
}
