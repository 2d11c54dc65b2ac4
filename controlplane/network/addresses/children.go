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
	"github.com/sluice-net/sluice/controlplane/reserved"
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
	taken, err := reserved.Addresses(ctx, r.Client, r.Reader)
	if err != nil {
		return nil, err
	}
	if err := forbidden(ip, taken); err != nil {
		return refused(err.Error()), r.removeService(ctx, ip)
	}
	s, e, err := service(ip)
	if err != nil {
		return refused(err.Error()), nil
	}
	for _, o := range []client.Object{s, e} {
		_, err := apply.Object(ctx, r.Client, r.Reader, o)
		if message, isRefused := apply.Refusal(err); isRefused {
			return refused(fmt.Sprintf("the %s of spec.serviceTemplate cannot be made: %s", kindOf(o), message)), nil
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
