package resourceslice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
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
	// allocatable is what nodes have that take pods, requested what pods have of it, granted what slices of all
	// consumers have.
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
		if l.taken, err = r.granted(ctx, s.UID, client.InNamespace(s.Namespace)); err != nil {
			return l, unlock, err
		}
	}
	if available {
		l.free, err = r.capacity(ctx, s.UID)
	}
	return l, unlock, err
}

// granted adds up what slices have, without one of them.
func (r *provider) granted(ctx context.Context, without types.UID, where ...client.ListOption) (corev1.ResourceList, error) {
	sum := corev1.ResourceList{}
	err := each(ctx, r.Reader, func(list *authv1beta1.ResourceSliceList) {
		for i := range list.Items {
			if s := &list.Items[i]; s.UID != without && isCopy(s) && accepted(s) {
				requests.Add(sum, s.Status.Resources)
			}
		}
	}, append(where, client.MatchingLabels{authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue})...)
	return sum, err
}

// capacity adds up what the nodes have and what is taken of it.
func (r *provider) capacity(ctx context.Context, without types.UID) (*capacity, error) {
	c := &capacity{allocatable: corev1.ResourceList{}, requested: corev1.ResourceList{}}
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
	err = each(ctx, r.Reader, func(list *corev1.PodList) {
		for i := range list.Items {
			// One that waits for a node will have one.
			if p := &list.Items[i]; takes[p.Spec.NodeName] || p.Spec.NodeName == "" {
				requests.Add(c.requested, requests.OfPod(p))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	c.granted, err = r.granted(ctx, without)
	return c, err
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
