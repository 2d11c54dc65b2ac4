package internalnetwork

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// networkName is the Network of the internal CIDR.
const networkName = ipamv1alpha1.NetworkTypeInternalCIDR

// Reasons and actions of events. The other reasons are those of conditions.
const (
	eventAddressReplaced = "AddressReplaced"
	eventVNIReplaced     = "VNIReplaced"
	actionAllocate       = "Allocate"
	actionJoin           = "JoinInternalNetwork"
)

// get reads an object into *into, which becomes nil if there is none.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key client.ObjectKey, into *P) error {
	switch err := c.Get(ctx, key, *into); {
	case apierrors.IsNotFound(err):
		*into = nil
	case err != nil:
		return fmt.Errorf("get %T %s: %w", *into, key, err)
	}
	return nil
}

// internalPool returns the internal CIDR, if it was given.
func internalPool(ctx context.Context, c client.Reader, key client.ObjectKey) (pool, error) {
	n := new(ipamv1alpha1.Network)
	if err := get(ctx, c, key, &n); err != nil || n == nil {
		return pool{}, err
	}
	p, err := n.Status.CIDR.Prefix()
	if err != nil {
		return pool{}, nil // not given yet
	}
	return pool{p.Masked(), int(n.Spec.PreAllocated)}, nil
}

// applyUnlessGoing is apply.Object for a namespace that may be about to go: what
// is in it goes too, and needs no repair.
func applyUnlessGoing(ctx context.Context, c client.Client, o client.Object) (wrote bool, err error) {
	wrote, err = apply.Object(ctx, c, nil, o)
	if apply.NamespaceEnds(err) {
		return false, nil
	}
	return wrote, err
}

// lastValues remembers the last value of each key, so that a change is reported
// once and not at every reconciliation.
type lastValues struct {
	mu sync.Mutex
	m  map[string]string
}

// update remembers a value and tells whether it is not the one before. Empty means
// none.
func (l *lastValues) update(key, value string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m[key] == value {
		return false
	}
	if l.m == nil {
		l.m = make(map[string]string)
	}
	if l.m[key] = value; value == "" {
		delete(l.m, key)
	}
	return true
}

// last returns the value of a key.
func (l *lastValues) last(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m[key]
}

func (l *lastValues) forget(key string) { l.update(key, "") }

// managedLabels returns the labels of an object that was made for a remote
// cluster, or for none.
func managedLabels(clusterID string) map[string]string {
	l := map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}
	if clusterID != "" {
		l[networkingv1beta1.LabelRemoteClusterID] = clusterID
	}
	return l
}
