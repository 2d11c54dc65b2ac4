package replication

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestTakeBack: a provider that is away is asked until it answers, and one that denies it a few times.
func TestTakeBack(t *testing.T) {
	resource := schema.GroupResource{Group: authv1beta1.GroupVersion.Group, Resource: "resourceslices"}
	away, denied := apierrors.NewServiceUnavailable("away"), apierrors.NewForbidden(resource, "", nil)
	for _, c := range []struct {
		name string
		err  error
		// until is when it ends to fail; kept until when there is a record; stop when the manager ends.
		until, kept, stop time.Duration
		over, left        bool
	}{
		{name: "it answers", over: true},
		{name: "it is away for a while", err: away, until: 10 * time.Second, over: true},
		{name: "it is away for a day", err: away, until: 24 * time.Hour, kept: 48 * time.Hour, over: true},
		{name: "it is away for a day, and there is no record", err: away, until: 24 * time.Hour, over: true, left: true},
		{name: "it is away for a day, and somebody takes the record away", err: away, until: 24 * time.Hour, kept: time.Hour, over: true, left: true},
		{name: "it is away for a day, and the manager ends", err: away, until: 24 * time.Hour, kept: 48 * time.Hour, stop: time.Hour, left: true},
		{name: "it has taken our rights", err: denied, until: 24 * time.Hour, kept: 48 * time.Hour, over: true, left: true},
		{name: "it does not accept the credentials", err: apierrors.NewUnauthorized("expired"), until: 24 * time.Hour, kept: 48 * time.Hour, over: true, left: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				here := object(t, original)
				remote := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(between.copyOf(&here)).Build(), interceptor.Funcs{
					List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
						switch {
						case list.GetObjectKind().GroupVersionKind().Group != authv1beta1.GroupVersion.Group:
							return denied // a provider without offloading
						case time.Since(began) < c.until:
							return c.err
						}
						return w.List(ctx, list, o...)
					},
				})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if c.stop > 0 {
					time.AfterFunc(c.stop, stop)
				}
				s := newSession(between, append(slices.Clone(copied), namespaceMap), nil, remote, logr.Discard(), nil)
				var failures []string
				s.log = funcr.New(func(_, args string) {
					if strings.Contains(args, `"error"=`) {
						failures = append(failures, args)
					}
				}, funcr.Options{})
				if over := s.takeBack(ctx, func() bool { return time.Since(began) < c.kept }); over != c.over {
					t.Errorf("over: %v", over)
				}
				err := remote.Get(t.Context(), client.ObjectKey{Namespace: between.there, Name: "milan"}, new(authv1beta1.ResourceSlice))
				if c.left && err != nil || !c.left && !apierrors.IsNotFound(err) {
					t.Errorf("the copy: %v", err)
				}
				if wanted := c.over && c.left && c.err == away; wanted != (len(failures) > 0) {
					t.Errorf("failures are logged: %q", failures)
				}
				if took := time.Since(began); took > c.until+lastSweepRetry || !c.over && took != c.stop {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestSweepsEnd: of a sweep that has come to its end nothing is kept.
func TestSweepsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build()
		r := &Reconciler{lifetime: t.Context(), records: &records{Client: c, live: c}, sweeps: map[peer]*sweep{}}
		for range 3 { // one that goes on is ended by the next one
			r.mu.Lock()
			r.sweep(newSession(between, copied, nil, c, logr.Discard(), nil), nil)
			r.mu.Unlock()
		}
		synctest.Wait()
		if len(r.sweeps) > 0 {
			t.Errorf("there are %v", r.sweeps)
		}
	})
}

func secretOf(namespace, name string, labels map[string]string, keys ...string) corev1.Secret {
	s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Data: map[string][]byte{}}
	for _, key := range keys {
		s.Data[key] = []byte("of " + key)
	}
	return s
}

// TestOrphans: what is kept for an identity that is there is left to it.
func TestOrphans(t *testing.T) {
	managed := map[string]string{"liqo.io/managed": "true"}
	identity := func(namespace, provider, there string) corev1.Secret {
		s := secretOf(namespace, "any", map[string]string{"liqo.io/identity-type": "ControlPlane", "liqo.io/remote-cluster-id": provider})
		s.Annotations = map[string]string{"liqo.io/remote-tenant-namespace": there}
		return s
	}
	going := identity("c", "milan", "theirs")
	going.DeletionTimestamp = new(metav1.Now())
	kept := []corev1.Secret{
		secretOf("a", "liqo-copies", managed, "milan.theirs", "milan.before", "naples.theirs"),
		secretOf("b", "liqo-copies", managed, "milan.theirs"),
		secretOf("c", "liqo-copies", managed, "milan.theirs", "milan", "milan.", ".x", "milan.a.b", "MILAN.theirs"),
		secretOf("d", "liqo-copies", nil, "milan.theirs"),
	}
	identities := []corev1.Secret{identity("a", "milan", "theirs"), identity("b", "naples", "theirs"), going}
	var got []string
	for _, r := range orphans(kept, identities, "rome") {
		if r.consumer != "rome" || string(r.kubeconfig) != "of "+r.recordKey() {
			t.Errorf("%+v", r)
		}
		got = append(got, r.here+": "+r.recordKey())
	}
	if diff := cmp.Diff([]string{"a: milan.before", "a: naples.theirs", "b: milan.theirs", "c: milan.theirs"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRecords: the Secret has an entry for each place, and goes with the last.
func TestRecords(t *testing.T) {
	writes := 0
	count := func(err error) error { writes++; return err }
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(new(secretOf("taken", "liqo-copies", nil, "a"))).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return count(w.Create(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return count(w.Patch(ctx, o, p, opts...))
		},
	})
	r := &records{Client: c, live: c}
	other := between
	other.provider = "naples"
	has := func(want ...string) {
		t.Helper()
		s, err := r.read(t.Context(), between.here)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		if s != nil {
			for k, v := range s.Data {
				got[k] = string(v)
			}
		}
		wanted := map[string]string{}
		for i := 0; i < len(want); i += 2 {
			wanted[want[i]] = want[i+1]
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if (len(want) == 0) != (s == nil) {
			t.Errorf("the Secret is %v", s)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.drop(t.Context(), between))
	must(r.keep(t.Context(), between, []byte("1")))
	must(r.keep(t.Context(), other, []byte("2")))
	must(r.keep(t.Context(), other, []byte("2")))
	has("milan.rome-there", "1", "naples.rome-there", "2")
	if writes != 2 {
		t.Errorf("%d writes", writes)
	}
	must(r.keep(t.Context(), between, []byte("3")))
	has("milan.rome-there", "3", "naples.rome-there", "2")
	must(r.drop(t.Context(), other))
	must(r.drop(t.Context(), other))
	has("milan.rome-there", "3")
	if kept, err := r.kept(t.Context(), between); !kept || err != nil {
		t.Error(kept, err)
	}
	if kept, err := r.kept(t.Context(), other); kept || err != nil {
		t.Error(kept, err)
	}
	must(r.drop(t.Context(), between))
	has()
	theirs := between
	theirs.here = "taken"
	if err := r.keep(t.Context(), theirs, []byte("1")); err == nil {
		t.Error("a Secret of somebody else is written")
	}
	if err := r.drop(t.Context(), theirs); err == nil {
		t.Error("a Secret of somebody else is deleted")
	}
}
