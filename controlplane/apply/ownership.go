package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// ForeignError says that an object exists that is not ours, under the name of one
// that we want to make. It is a [Refusal].
type ForeignError struct {
	object string
	whose  string
}

// Error implements error.
func (e *ForeignError) Error() string { return e.object + ": " + e.message() }

func (e *ForeignError) message() string {
	return "it exists and " + e.whose + ": it is left as it is; delete it, or give one of the two another name"
}

// Ours tells whether a live object may be written or deleted for the controller
// owner, which is nil for objects without one:
//
//	controlled by owner                              yes
//	controlled by another object                     no
//	controlled by nobody, labelled liqo.io/managed   yes: its owner was deleted and left it behind
//	controlled by nobody, of a kind of this project  yes: other implementations label less
//	controlled by nobody else                        no: a user's
func Ours(scheme *runtime.Scheme, live client.Object, owner *metav1.OwnerReference) bool {
	if c := metav1.GetControllerOf(live); c != nil {
		return owner != nil && c.UID == owner.UID
	}
	if isManaged(live) {
		return true
	}
	gvk, err := apiutil.GVKForObject(live, scheme)
	return err == nil && OfNetwork(gvk.Group)
}

// OfNetwork tells whether a group is of the network, and so changes hands with it, rather than of authentication or offloading.
func OfNetwork(group string) bool {
	return group == networkingv1beta1.GroupVersion.Group || group == ipamv1alpha1.GroupVersion.Group
}

func isManaged(o client.Object) bool {
	return o.GetLabels()[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue
}

// isGoing tells whether an object of ours is being deleted, or will be because its
// owner is gone and desired's has that name now.
func isGoing(live, desired client.Object) bool {
	had, has := metav1.GetControllerOf(live), metav1.GetControllerOf(desired)
	return !live.GetDeletionTimestamp().IsZero() ||
		had != nil && has != nil && had.Kind == has.Kind && had.Name == has.Name && had.UID != has.UID
}

// sameGateway tells whether the labels of two objects lead to the same gateway, or
// to none. It is what tells objects apart that no owner reference can reach.
func sameGateway(live, desired client.Object) bool {
	for _, label := range []string{networkingv1beta1.LabelGatewayNamespace, networkingv1beta1.LabelGatewayName} {
		if have, want := live.GetLabels()[label], desired.GetLabels()[label]; have != "" && want != "" && have != want {
			return false
		}
	}
	return true
}

// foreign is the error about a live object that is not ours.
func foreign(kind string, live client.Object) *ForeignError {
	whose := "is not of this controller's making"
	if c := metav1.GetControllerOf(live); c != nil {
		whose = fmt.Sprintf("belongs to %s %s", c.Kind, c.Name)
	} else if name := live.GetLabels()[networkingv1beta1.LabelGatewayName]; name != "" && isManaged(live) {
		whose = fmt.Sprintf("belongs to gateway %s of namespace %s", name, live.GetLabels()[networkingv1beta1.LabelGatewayNamespace])
	}
	return &ForeignError{kind + " " + live.GetName(), whose}
}

// Controller is the reference to its owner of what a controller makes for an object. It does not block the deletion of the
// owner, which takes the right to update the owner's finalizers where the API server asks who may (the admission plugin
// OwnerReferencesPermissionEnforcement, which OpenShift enables).
func Controller(owner metav1.Object, kind schema.GroupVersionKind) []metav1.OwnerReference {
	ref := metav1.NewControllerRef(owner, kind)
	ref.BlockOwnerDeletion = nil
	return []metav1.OwnerReference{*ref}
}

// TieTo makes owner the only owner of an object that somebody else has made in its namespace: when the owner is deleted, so
// is the object. Another owner would keep it. What changes do to the object is written along. A conflict is an error.
func TieTo(ctx context.Context, c client.Client, owner, o client.Object, changes ...func()) error {
	before := o.DeepCopyObject().(client.Object)
	o.SetOwnerReferences(nil)
	if err := controllerutil.SetOwnerReference(owner, o, c.Scheme()); err != nil {
		return err
	}
	for _, change := range changes {
		change()
	}
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, o, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("tie %s to %s: %w", o.GetName(), owner.GetName(), err)
	}
	return nil
}
