package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Kinds that go with a gateway by garbage collection, which takes a moment.
var (
	// ownedKinds belong to the gateway itself.
	ownedKinds = []schema.GroupVersionKind{
		networkingv1beta1.GroupVersion.WithKind("Connection"),
		networkingv1beta1.GroupVersion.WithKind("PublicKey"),
		networkingv1beta1.GroupVersion.WithKind("WgGatewayServer"),
		networkingv1beta1.GroupVersion.WithKind("WgGatewayClient"),
		corev1.SchemeGroupVersion.WithKind("Secret"),
	}
	// labelledKinds belong to what was rendered from the template, and carry the
	// gateway's name.
	labelledKinds = []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"),
		corev1.SchemeGroupVersion.WithKind("Pod"),
	}
)

// remains says what is left of a gateway that was deleted; "": nothing.
func (e *end) remains(ctx context.Context, g *gateway) (left string, err error) {
	of := client.MatchingLabels{networkingv1beta1.LabelGatewayName: g.GetName(), networkingv1beta1.LabelGatewayNamespace: g.GetNamespace()}
	var all []string
	for _, kind := range labelledKinds {
		names, err := e.names(ctx, kind, g.GetNamespace(), "", of)
		if err != nil {
			return "", err
		}
		all = append(all, names...)
	}
	for _, kind := range ownedKinds {
		names, err := e.names(ctx, kind, g.GetNamespace(), g.GetUID())
		if err != nil {
			return "", err
		}
		all = append(all, names...)
	}
	if len(all) == 0 {
		return "", nil
	}
	return fmt.Sprintf("parts of %s are left in namespace %s: %s", g, g.GetNamespace(), strings.Join(all, ", ")), nil
}

// remainsOfConfiguration says what is left of a Configuration that was deleted:
// the Networks with the CIDRs of the peer.
func (e *end) remainsOfConfiguration(ctx context.Context, c *networkingv1beta1.Configuration) (left string, err error) {
	names, err := e.names(ctx, ipamv1alpha1.GroupVersion.WithKind("Network"), c.Namespace, c.UID)
	if len(names) == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("parts of Configuration %s/%s are left: %s", c.Namespace, c.Name, strings.Join(names, ", ")), nil
}

// names lists objects of a kind, of an owner where one is given. What the user may
// not see, or the cluster does not know, is not there.
func (e *end) names(ctx context.Context, kind schema.GroupVersionKind, namespace string, owner types.UID, o ...client.ListOption) (names []string, err error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = e.Client.List(ctx, &list, append(o, client.InNamespace(namespace))...)
	if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.Explain(fmt.Sprintf("list %ss in namespace %s", kind.Kind, namespace), err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if owner == "" || ownedBy(m, owner) {
			names = append(names, kind.Kind+" "+m.Name)
		}
	}
	return names, nil
}

func ownedBy(o metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}
