package addresses

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

// networks finds the Networks of IPs in a cache, during one Reconcile.
type networks struct {
	reader        client.Reader
	liqoNamespace string
	// err is the first one met. A Network that could not be read is not there.
	err error
}

func (n *networks) of(ctx context.Context) lookup {
	return func(c claim) (origin, bool) {
		if c.network == "" {
			return external(c, n.installed(ctx))
		}
		namespace, name, _ := strings.Cut(c.network, "/")
		var network ipamv1alpha1.Network
		if err := n.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &network); err != nil {
			n.fail(client.IgnoreNotFound(err))
			return origin{}, false
		}
		return originOf(&network, n.liqoNamespace), true
	}
}

// installed returns the Networks of the Liqo namespace.
func (n *networks) installed(ctx context.Context) []origin {
	var list ipamv1alpha1.NetworkList
	n.fail(n.reader.List(ctx, &list, client.InNamespace(n.liqoNamespace), client.UnsafeDisableDeepCopy))
	return originsOf(list.Items, n.liqoNamespace)
}

func (n *networks) fail(err error) {
	if n.err == nil && err != nil {
		n.err = fmt.Errorf("read Networks: %w", err)
	}
}

// readNetworks reads all Networks.
func readNetworks(ctx context.Context, reader client.Reader, liqoNamespace string) (lookup, error) {
	var list ipamv1alpha1.NetworkList
	if err := reader.List(ctx, &list); err != nil {
		return nil, err
	}
	return lookupIn(originsOf(list.Items, liqoNamespace)), nil
}

func originsOf(list []ipamv1alpha1.Network, liqoNamespace string) []origin {
	origins := make([]origin, len(list))
	for i := range list {
		origins[i] = originOf(&list[i], liqoNamespace)
	}
	return origins
}

// lookupIn finds the Network of an IP among these.
func lookupIn(origins []origin) lookup {
	byKey := make(map[string]origin, len(origins))
	for _, o := range origins {
		byKey[o.key] = o
	}
	return func(c claim) (origin, bool) {
		if c.network == "" {
			return external(c, origins)
		}
		o, ok := byKey[c.network]
		return o, ok
	}
}
