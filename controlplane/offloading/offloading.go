// Package offloading runs the controllers by which pods of one cluster run in another.
//
//	consumer: namespacemap, namespaceoffloading, scheduling    which namespaces, and which of their pods
package offloading

import (
	"context"
	"fmt"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/offloading/namespacemap"
	"github.com/sluice-net/sluice/controlplane/offloading/namespaceoffloading"
	"github.com/sluice-net/sluice/controlplane/offloading/scheduling"
)

// Options say how the controllers work.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
}

// SetupWithManager adds the controllers to mgr.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	id := remember(identify.Cluster{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), LiqoNamespace: o.LiqoNamespace}.ID)
	for _, c := range []struct {
		name string
		err  error
	}{
		{"namespacemap", namespacemap.SetupWithManager(mgr, id)},
		{"namespaceoffloading", namespaceoffloading.SetupWithManager(mgr, id)},
		{"scheduling", scheduling.SetupWithManager(mgr)},
	} {
		if c.err != nil {
			return fmt.Errorf("set up %s: %w", c.name, c.err)
		}
	}
	return nil
}

// remember asks until there is an answer, which never changes.
func remember(ask func(context.Context) (string, error)) func(context.Context) (string, error) {
	var mu sync.Mutex
	answer := ""
	return func(ctx context.Context) (_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if answer == "" {
			answer, err = ask(ctx)
		}
		return answer, err
	}
}
