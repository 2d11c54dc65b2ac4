package addresses

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips/finalizers,verbs=update

// service makes the Service and the EndpointSlice of an IP what its template
// says, and returns the condition that tells so; nil if there is no template. The
// error is one that a retry may cure.
func (r *Reconciler) service(ctx context.Context, ip *ipamv1alpha1.IP) (*metav1.Condition, error) {
	if ip.Spec.ServiceTemplate == nil {
		return nil, r.removeService(ctx, ip)
	}
	s, e, err := service(ip)
	if err != nil {
		return refused(err.Error()), nil
	}
	for _, o := range []client.Object{s, e} {
		switch mine, err := r.mine(ctx, ip, o); {
		case err != nil:
			return nil, err
		case !mine:
			return refused(fmt.Sprintf("%s %s/%s exists and is not of this IP: delete it, or give the IP another name", kindOf(o), ip.Namespace, ip.Name)), nil
		}
		_, err := apply.Object(ctx, r.Client, o)
		if message, isRefused := apply.Refusal(err); isRefused {
			return refused(fmt.Sprintf("the API server refuses the %s of spec.serviceTemplate: %s", kindOf(o), message)), nil
		}
		switch {
		case apply.NamespaceEnds(err):
			return nil, nil // the IP goes, too
		case err != nil:
			return nil, err
		}
	}
	return &metav1.Condition{
		Type: string(ipamv1alpha1.ConditionServiceReady), Status: metav1.ConditionTrue,
		Reason: string(ipamv1alpha1.ReasonServiceApplied), Message: "Service " + ip.Name + " leads to " + string(ip.Spec.IP),
	}, nil
}

func refused(message string) *metav1.Condition {
	return &metav1.Condition{
		Type: string(ipamv1alpha1.ConditionServiceReady), Status: metav1.ConditionFalse,
		Reason: string(ipamv1alpha1.ReasonObjectRefused), Message: message,
	}
}

func kindOf(o client.Object) string {
	if _, ok := o.(*corev1.Service); ok {
		return "Service"
	}
	return "EndpointSlice"
}

// mine tells whether an object may be written: it is not there, or it is the
// IP's. The cache sees only what is labelled as ours, so what is not in it is
// asked for once more: a Service that somebody else made stays theirs.
func (r *Reconciler) mine(ctx context.Context, ip *ipamv1alpha1.IP, o client.Object) (bool, error) {
	live, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("%T is no client.Object", o)
	}
	key := client.ObjectKeyFromObject(o)
	err := r.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, live)
	}
	if err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return metav1.IsControlledBy(live, ip), nil
}

// removeService deletes what an earlier template made.
func (r *Reconciler) removeService(ctx context.Context, ip *ipamv1alpha1.IP) error {
	for _, o := range []client.Object{new(corev1.Service), new(discoveryv1.EndpointSlice)} {
		err := r.Get(ctx, client.ObjectKeyFromObject(ip), o)
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(o, ip) {
			continue
		}
		if err != nil {
			return fmt.Errorf("get %s: %w", kindOf(o), err)
		}
		if err := apply.Delete(ctx, r.Client, o); err != nil {
			return err
		}
	}
	return nil
}
