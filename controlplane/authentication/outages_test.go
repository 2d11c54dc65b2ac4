package authentication_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestOutages has an API server or a controller be away while the other side changes something. Afterwards both sides are
// equal, and nothing was deleted that was to stay.
func TestOutages(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "consumer-side"), newSite(t, "milan", "rome", "provider-side")
	rome.Create(t, admit(rome, milan))
	accepted := func(name, cpu string) {
		t.Helper()
		controlplanetest.Eventually(t, fmt.Sprintf("slice %s has %s", name, cpu), func(ctx context.Context) error {
			var s authv1beta1.ResourceSlice
			if err := rome.Get(ctx, rome.tenant, name, &s); err != nil {
				return err
			}
			if got := s.Status.Resources[corev1.ResourceCPU]; got.String() != cpu {
				return fmt.Errorf("%+v", s.Status)
			}
			return nil
		})
	}
	for _, name := range []string{"milan", "more"} {
		rome.Create(t, slice(rome, name, "cpu", "1"))
		accepted(name, "1")
	}
	before := milan.uid("milan")
	stays := func(t *testing.T) {
		t.Helper()
		if now := milan.uid("milan"); now != before {
			t.Errorf("the copy is %s, and was %s", now, before)
		}
	}

	t.Run("the consumer's controller restarts while the provider is away", func(t *testing.T) {
		milan.StopAPIServer()
		rome.changeCPU("milan", "2")
		rome.stop()
		rome.Delete(t, slice(rome, "more"))
		rome.run()
		rome.Create(t, slice(rome, "later", "cpu", "1"))
		if err := milan.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		milan.copies("later", "milan")
		accepted("milan", "2")
		accepted("later", "1")
		stays(t)
	})

	t.Run("the provider's controller restarts meanwhile as well", func(t *testing.T) {
		milan.stop()
		rome.changeCPU("milan", "3")
		rome.Create(t, slice(rome, "more", "cpu", "1"))
		milan.copies("later", "milan", "more")
		milan.run()
		accepted("milan", "3")
		accepted("more", "1")
		stays(t)
	})

	t.Run("the consumer is away", func(t *testing.T) {
		rome.StopAPIServer()
		milan.Delete(t, slice(milan, "later"))
		milan.condition("rome", authv1beta1.TenantDrained)
		milan.tenantBecomes("rome", authv1beta1.ReasonTenantDrained)
		if err := rome.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"milan", "more", "later"} {
			rome.sliceBecomes(name, authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonTenantDrained)
		}
		milan.copies("later", "milan", "more")
		milan.condition("rome", authv1beta1.TenantActive)
		accepted("milan", "3")
		accepted("later", "1")
		stays(t)
	})

	t.Run("a copy that somebody deletes", func(t *testing.T) {
		first := milan.uid("more")
		milan.Delete(t, slice(milan, "more"))
		controlplanetest.Eventually(t, "it is written again", func(ctx context.Context) error {
			var s authv1beta1.ResourceSlice
			if err := milan.Get(ctx, milan.tenant, "more", &s); err != nil {
				return err
			}
			if got := s.Status.Resources[corev1.ResourceCPU]; s.UID == first || got.String() != "1" {
				return fmt.Errorf("it is %s with %+v", s.UID, s.Status)
			}
			return nil
		})
		accepted("more", "1")
	})

	t.Run("an annotation that changes", func(t *testing.T) {
		becomes := func(want string) {
			t.Helper()
			controlplanetest.Eventually(t, "the annotation of the copy is "+want, func(ctx context.Context) error {
				var s authv1beta1.ResourceSlice
				if err := milan.Get(ctx, milan.tenant, "milan", &s); err != nil {
					return err
				}
				if got := s.Annotations["example.org/note"]; got != want {
					return fmt.Errorf("it is %q of %v", got, s.Annotations)
				}
				return nil
			})
		}
		rome.annotate("milan", `"a"`)
		becomes("a")
		rome.annotate("milan", `"b"`)
		becomes("b")
		rome.stop()
		rome.annotate("milan", "null")
		rome.run()
		becomes("")
		stays(t)
	})
}

// uid identifies a slice, whatever its name.
func (s *site) uid(name string) types.UID {
	s.t.Helper()
	var o authv1beta1.ResourceSlice
	s.Read(s.t, s.tenant, name, &o)
	return o.UID
}

// annotate sets an annotation of a slice to a JSON value.
func (s *site) annotate(name, value string) {
	s.t.Helper()
	o := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: name}}
	if err := s.Client.Patch(s.t.Context(), o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/note":%s}}}`, value))); err != nil {
		s.t.Fatal(err)
	}
}

// TestTakenBack: what an identity has copied is taken back when it goes, whoever is away at that moment.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "consumer-side"), newSite(t, "milan", "rome", "provider-side")
	identity := admit(rome, milan)
	rome.Create(t, slice(rome, "milan", "cpu", "1"))
	again := func() {
		t.Helper()
		rome.Create(t, identity.DeepCopy())
		milan.copies("milan")
		rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
		rome.secret(authv1beta1.CopiesSecret, "milan.provider-side")
	}
	nothingLeft := func(t *testing.T) {
		t.Helper()
		milan.copies()
		rome.Gone(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: authv1beta1.CopiesSecret}}) // with the kubeconfig
	}

	again()
	t.Run("by a controller that runs", func(t *testing.T) {
		rome.Delete(t, identity.DeepCopy())
		nothingLeft(t)
	})
	again()
	t.Run("while no controller runs", func(t *testing.T) {
		rome.stop()
		rome.Delete(t, identity.DeepCopy())
		rome.run()
		nothingLeft(t)
	})
	again()
	t.Run("while the provider is away, and then the controller", func(t *testing.T) {
		milan.StopAPIServer()
		rome.Delete(t, identity.DeepCopy())
		rome.stop()
		rome.run()
		if err := milan.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t)
	})
	again()
	t.Run("from a Secret that was spoiled before", func(t *testing.T) {
		spoiled := identity.DeepCopy()
		spoiled.Data["kubeconfig"] = []byte("nonsense")
		rome.update(spoiled)
		rome.event(identity.Name, authv1beta1.ReasonKubeconfigInvalid, "kubeconfig")
		rome.Delete(t, spoiled)
		nothingLeft(t)
	})
	again()
	t.Run("unless the identity comes back", func(t *testing.T) {
		before := milan.uid("milan")
		milan.StopAPIServer()
		rome.Delete(t, identity.DeepCopy())
		rome.Create(t, identity.DeepCopy())
		rome.Create(t, slice(rome, "later", "cpu", "1"))
		if err := milan.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		rome.sliceBecomes("later", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
		if now := milan.uid("milan"); now != before {
			t.Errorf("the copy is %s, and was %s", now, before)
		}
		rome.Delete(t, identity.DeepCopy())
		nothingLeft(t)
	})
}
