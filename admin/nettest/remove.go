package nettest

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
)

// Remove deletes what tests have created in the clusters, and waits until it is gone.
func Remove(ctx context.Context, clusters []*access.Cluster, say progress.Func) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	r := &run{say: say.Serial()}
	return errors.Join(access.Together(clusters, func(c *access.Cluster) error { return (&site{Cluster: c, run: r}).remove(ctx) })...)
}

func (s *site) remove(ctx context.Context) error {
	var going []string
	for _, name := range []string{Namespace, HostNamespace} {
		var ns corev1.Namespace
		err := s.Client.Get(ctx, types.NamespacedName{Name: name}, &ns)
		if err == nil && ns.Labels[peering.LabelManagedBy] == peering.FieldOwner {
			going = append(going, name)
			err = s.Client.Delete(ctx, &ns)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // a conflict: it is being deleted
			return s.Explain("delete namespace "+name, err)
		}
	}
	for _, name := range going {
		if err := s.gone(ctx, name); err != nil {
			return err
		}
	}
	if len(going) > 0 {
		s.say.Done(s.Name, "Pods and Services of the test removed")
	}
	return nil
}

// gone waits until a namespace is gone.
func (s *site) gone(ctx context.Context, name string) error {
	return s.poll(ctx, "Removing namespace "+name, func(ctx context.Context) (string, error) {
		var ns corev1.Namespace
		err := s.Client.Get(ctx, types.NamespacedName{Name: name}, &ns)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is being deleted", s.Explain("read namespace "+name, err)
	})
}
