// Package controllers begins the controllers of cmd/controller: what all of them have in common.
package controllers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// What fails is reconciled again after firstPause, then after twice as long, and so on up to longestPause. By default
// controller-runtime waits for up to 17 minutes: what an API server, a webhook or a quota has refused for a while would
// still be missing that long after they no longer do.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 30 * time.Second
)

// Options are those of a controller. New sets the RateLimiter.
type (
	Options                    = TypedOptions[ctrl.Request]
	TypedOptions[T comparable] = controller.TypedOptions[T]
)

// New begins a controller of that name.
func New(mgr ctrl.Manager, name string, o Options) *ctrl.Builder { return NewTyped(mgr, name, o) }

// NewTyped is New with requests of another type.
func NewTyped[T comparable](mgr ctrl.Manager, name string, o TypedOptions[T]) *builder.TypedBuilder[T] {
	o.RateLimiter = pauses[T]()
	return builder.TypedControllerManagedBy[T](mgr).Named(name).WithOptions(o)
}

func pauses[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstPause, longestPause)
}
