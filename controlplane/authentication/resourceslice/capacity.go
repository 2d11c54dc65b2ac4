package resourceslice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/controlplane/requests"
)

// ledger is what a decision about a slice depends on beside the slice and its Tenant.
type ledger struct {
	// quota bounds what the consumer gets altogether; nil: nothing does. wrong is why it cannot be read; empty: it can.
	quota corev1.ResourceList
	wrong string
	// taken was granted to its other slices.
	taken corev1.ResourceList
	// free is what this cluster has left; nil: nobody asks.
	free *capacity
}

// capacity is what a cluster has left.
type capacity struct {
	// allocatable is what nodes have that take pods, granted what slices of all consumers have of it, requested what
	// pods have that no slice covers.
	allocatable, requested, granted corev1.ResourceList
}

// left is what there is of a resource, which may be less than nothing.
func (c *capacity) left(name corev1.ResourceName) resource.Quantity {
	q := c.allocatable[name].DeepCopy()
	q.Sub(c.requested[name])
	q.Sub(c.granted[name])
	return q
}

// pageSize is how many objects are read at once.
const pageSize = 500

// ledger reads what a decision about s depends on, past the cache, which may not have what was granted just now. What
// was read holds until unlock.
func (r *provider) ledger(ctx context.Context, s *authv1beta1.ResourceSlice) (l ledger, unlock func(), err error) {
	unlock = func() {}
	available := s.Spec.Class == authv1beta1.SliceClassAvailable
	if settled(s) || !available && s.Spec.Class != "" && s.Spec.Class != authv1beta1.SliceClassDefault {
		return l, unlock, nil // nothing depends on it
	}
	var n corev1.Namespace
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: s.Namespace}, &n); err != nil {
		return l, unlock, fmt.Errorf("get the namespace: %w", err)
	}
	text, limited := n.Annotations[authv1beta1.AnnotationQuota]
	if !limited && !available {
		return l, unlock, nil
	}
	r.bounded.Lock()
	unlock = r.bounded.Unlock
	if limited {
		if l.quota, err = parseQuota(text); err != nil {
			l.wrong = fmt.Sprintf("the annotation %s of namespace %s: %v", authv1beta1.AnnotationQuota, s.Namespace, err)
		}
		l.taken = corev1.ResourceList{}
		err = r.grants(ctx, s.UID, func(other *authv1beta1.ResourceSlice) { requests.Add(l.taken, other.Status.Resources) }, client.InNamespace(s.Namespace))
		if err != nil {
			return l, unlock, err
		}
	}
	if available {
		l.free, err = r.capacity(ctx, s)
	}
	return l, unlock, err
}

// grants reads the slices that have something, without one of them.
func (r *provider) grants(ctx context.Context, without types.UID, do func(*authv1beta1.ResourceSlice), where ...client.ListOption) error {
	return each(ctx, r.Reader, func(list *authv1beta1.ResourceSliceList) {
		for i := range list.Items {
			if s := &list.Items[i]; s.UID != without && isCopy(s) && accepted(s) {
				do(s)
			}
		}
	}, append(where, client.MatchingLabels{authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue})...)
}

// capacity adds up what the nodes have, and what is taken of it by all but s. Pods that run under a slice are part of what
// it was granted. They count beyond that only: a grant that is lowered or taken back ends no pod.
func (r *provider) capacity(ctx context.Context, s *authv1beta1.ResourceSlice) (*capacity, error) {
	c := &capacity{allocatable: corev1.ResourceList{}, requested: corev1.ResourceList{}, granted: corev1.ResourceList{}}
	takes := map[string]bool{}
	err := each(ctx, r.Reader, func(list *corev1.NodeList) {
		for i := range list.Items {
			if n := &list.Items[i]; takesPods(n) {
				takes[n.Name] = true
				requests.Add(c.allocatable, n.Status.Allocatable)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	offloaded := map[string]corev1.ResourceList{} // by the user that their labels name, which only the controller writes
	err = each(ctx, r.Reader, func(list *corev1.PodList) {
		for i := range list.Items {
			p := &list.Items[i]
			if p.Spec.NodeName != "" && !takes[p.Spec.NodeName] { // one that waits for a node will have one
				continue
			}
			to := c.requested
			if p.Labels[offloadingv1beta1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowPod {
				user := p.Labels[offloadingv1beta1.LabelCreatorUser]
				if offloaded[user] == nil {
					offloaded[user] = corev1.ResourceList{}
				}
				to = offloaded[user]
			}
			requests.Add(to, requests.OfPod(p))
		}
	})
	if err != nil {
		return nil, err
	}
	err = r.grants(ctx, s.UID, func(other *authv1beta1.ResourceSlice) {
		requests.Add(c.granted, other.Status.Resources)
		cover(offloaded[userLabel(other)], other.Status.Resources)
	})
	delete(offloaded, userLabel(s)) // part of what it asks for
	for _, beyond := range offloaded {
		requests.Add(c.requested, beyond)
	}
	return c, err
}

// userLabel is what the label [offloadingv1beta1.LabelCreatorUser] says on the pods that run under a slice; empty: there are
// none.
func userLabel(s *authv1beta1.ResourceSlice) string {
	if s.Spec.ConsumerClusterID == nil {
		return ""
	}
	user := credentials.SliceSubject(s.Name, string(*s.Spec.ConsumerClusterID)).CommonName
	return objectname.Shorten(user, validation.LabelValueMaxLength)
}

// cover takes from requested what was granted, until nothing is left of it.
func cover(requested, granted corev1.ResourceList) {
	for name, q := range requested {
		if q.Sub(granted[name]); q.Sign() < 0 {
			q = resource.Quantity{}
		}
		requested[name] = q
	}
}

// each reads all objects of a kind in pages.
func each[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, r client.Reader, do func(P), o ...client.ListOption) error {
	for next := ""; ; {
		list := P(new(L))
		if err := r.List(ctx, list, append(o, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		do(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// takesPods tells whether new pods run on a node. A virtual node is another cluster's.
func takesPods(n *corev1.Node) bool {
	if n.Spec.Unschedulable || n.Labels["liqo.io/type"] == "virtual-node" {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
