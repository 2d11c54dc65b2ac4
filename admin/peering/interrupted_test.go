package peering_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// interrupted runs a command again and again. The first time it is interrupted after one line that says what is done, the
// second time after two, until it comes to its end.
func interrupted(t *testing.T, command func(context.Context, progress.Func) error) (times int) {
	t.Helper()
	for ; ; times++ {
		ctx, cancel := context.WithCancel(t.Context())
		var lines atomic.Int64
		err := command(ctx, func(e progress.Event) {
			if e.Kind == progress.Done && lines.Add(1) > int64(times) {
				cancel()
			}
		})
		over := ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return times
		case over:
			t.Fatalf("interrupted %d times, it fails: %v", times, err)
		}
	}
}

// TestInterrupted: a peering that was interrupted after every line is like one that was not, and its end leaves nothing.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	rome, milan, o, before := pairOf(t)
	if err := peering.Peer(t.Context(), rome.access, milan.access, o, nil); err != nil {
		t.Fatal(err)
	}
	before = afterwards(before)
	there := settled(t, rome, milan, [2]*side{rome, milan})
	end := o.Options
	end.DeleteNamespaces = true
	unpeer := func(ctx context.Context, tell progress.Func) error {
		return peering.Unpeer(ctx, rome.access, milan.access, end, tell)
	}
	if n := interrupted(t, unpeer); n < 10 {
		t.Errorf("the end of a peering has %d lines only", n)
	}
	like(t, before, rome, milan)
	n := interrupted(t, func(ctx context.Context, tell progress.Func) error {
		return peering.Peer(ctx, rome.access, milan.access, o, tell)
	})
	if n < 20 {
		t.Errorf("a peering has %d lines only", n)
	}
	like(t, there, rome, milan)
	if err := unpeer(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	like(t, before, rome, milan)
}

// settled returns the objects that there are after the controllers have made what they make after the last line of a
// peering; of each the consumer comes first.
func settled(t *testing.T, rome, milan *side, peerings ...[2]*side) (there []string) {
	t.Helper()
	controlplanetest.Eventually(t, "the controllers have made what they make after the last line", func(context.Context) (err error) {
		if there, err = objectsOf(rome, milan); err != nil {
			return err
		}
		for _, p := range peerings {
			consumer, provider := p[0].id, p[1].id
			for _, last := range []string{
				consumer + ": Secret liqo-tenant-" + provider + "/kubeconfig-resourceslice-" + provider,
				consumer + ": Renew liqo-tenant-" + provider + "/controlplane-" + provider,
				provider + ": Renew liqo-tenant-" + consumer + "/controlplane-" + provider,
			} {
				if !slices.Contains(there, last) {
					return errors.New("there is no " + last)
				}
			}
		}
		return nil
	})
	return there
}

// TestGone: each cluster has an identity in the other one, and the API server of one is away for good. The other one
// forgets it in both roles, and its own key, as one that is installed anew. Then the other comes back after all, with what it
// knew, and they peer as if nothing had been.
func TestGone(t *testing.T) {
	t.Parallel()
	rome, milan, o, before := pairOf(t)
	if err := peering.Peer(t.Context(), rome.access, milan.access, o, nil); err != nil {
		t.Fatal(err)
	}
	back := o
	back.NetworkingDisabled = true
	if err := peering.Peer(t.Context(), milan.access, rome.access, back, nil); err != nil {
		t.Fatal(err)
	}
	there := settled(t, rome, milan, [2]*side{rome, milan}, [2]*side{milan, rome})
	milan.StopAPIServer()
	comesBack := sync.OnceValue(milan.StartAPIServer)
	t.Cleanup(func() {
		if err := comesBack(); err != nil {
			t.Error(err)
		}
	})
	end := o.Options
	end.RemoteClusterID, end.DeleteNamespaces = milan.id, true
	for range 2 { // it may be repeated
		if err := peering.Unpeer(t.Context(), rome.access, nil, end, nil); err != nil {
			t.Fatal(err)
		}
	}
	like(t, only(rome, afterwards(before)), rome)
	rome.Delete(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "authentication-keys"}})

	if err := comesBack(); err != nil {
		t.Fatal(err)
	}
	// The controllers of a cluster that was away look again after pauses of up to a minute.
	o.Timeout, back.Timeout = 3*controlplanetest.Patience, 3*controlplanetest.Patience
	if err := peering.Peer(t.Context(), rome.access, milan.access, o, nil); err != nil {
		t.Fatalf("with a cluster that has come back: %v", err)
	}
	if err := peering.Peer(t.Context(), milan.access, rome.access, back, nil); err != nil {
		t.Fatalf("the other way round: %v", err)
	}
	like(t, there, rome, milan)
	if err := peering.Unpeer(t.Context(), milan.access, rome.access, o.Options, nil); err != nil {
		t.Fatal(err)
	}
	end = o.Options
	end.DeleteNamespaces = true
	if err := peering.Unpeer(t.Context(), rome.access, milan.access, end, nil); err != nil {
		t.Fatal(err)
	}
	like(t, slices.Sorted(slices.Values(append(afterwards(before), "milan: Secret liqo/authentication-keys"))), rome, milan)
}

// only are the objects of one side.
func only(s *side, all []string) (own []string) {
	for _, name := range all {
		if strings.HasPrefix(name, s.id+": ") {
			own = append(own, name)
		}
	}
	return own
}

// like waits until there are exactly these objects in some clusters.
func like(t *testing.T, want []string, sides ...*side) {
	t.Helper()
	controlplanetest.Eventually(t, "the objects are the same", func(context.Context) error {
		now, err := objectsOf(sides...)
		if diff := cmp.Diff(want, now); err == nil && diff != "" {
			err = errors.New("(-want +got):\n" + diff)
		}
		return err
	})
}
