// Package enqueue says which events matter, and finds what to reconcile after one that concerns several objects.
package enqueue

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Each returns a request for every object of a list that a cache fills: key says for what. It is
// client.ObjectKeyFromObject where the objects themselves are reconciled, and must not change them.
func Each(ctx context.Context, r client.Reader, list client.ObjectList, key func(client.Object) types.NamespacedName, which ...client.ListOption) (requests []ctrl.Request) {
	err := r.List(ctx, list, append(which, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if o, ok := o.(client.Object); ok {
				requests = append(requests, ctrl.Request{NamespacedName: key(o)})
			}
			return nil
		})
	}
	if err != nil { // the cache is being stopped
		log.FromContext(ctx).Error(err, "an event may be lost", "list", fmt.Sprintf("%T", list))
	}
	return requests
}

// When passes whatever comes or goes, and those updates of which differ says that they matter.
func When[T client.Object](differ func(before, now T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		now, also := e.ObjectNew.(T)
		return !ok || !also || differ(before, now)
	}}
}
