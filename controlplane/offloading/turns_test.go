package offloading_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/offloading/shadowpod"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestTurns: rome asks for more than can be looked at at the same time, and none of it comes to an end. What zurich asks for
// after all that is done nevertheless: one more object of rome's is looked at before it, and not all.
func TestTurns(t *testing.T) {
	namespaces := []string{"a-rome", "b-rome", "c-rome", "d-rome"}
	flood := shadowpod.Workers/len(namespaces) + 1 // in each: together more than there are workers for ShadowPods, of which there are most
	milan := newSite(t, "milan")
	cpu := corev1.ResourceList{"cpu": resource.MustParse("100")}
	var wanted, asked []string
	for _, n := range namespaces {
		local := strings.TrimSuffix(n, "-rome")
		wanted, asked = append(wanted, local, n, "Accepted"), append(asked, local, n)
	}
	rome, zurich := milan.authorize("rome"), milan.authorize("zurich")
	milan.Create(t, namespaceMap(rome, "milan", "rome", asked...))
	milan.Create(t, namespaceMap(zurich, "milan", "zurich", "a", "e-zurich"))
	milan.mapping(rome, "milan", wanted...)
	milan.mapping(zurich, "milan", "a", "e-zurich", "Accepted")
	unsigned := func(namespace, consumer, name string) *authv1beta1.ResourceSlice {
		s := sliceOf(t, namespace, consumer, "milan", cpu)
		s.Name, s.Spec.CSR = name, nil
		return s
	}
	for consumer, namespace := range map[string]string{"rome": rome, "zurich": zurich} {
		milan.Create(t, unsigned(namespace, consumer, "milan"))
		milan.acceptedAre(namespace, "milan")
		quota := credentials.SliceSubject("milan", consumer).CommonName
		controlplanetest.Eventually(t, "there is the Quota of "+consumer, func(ctx context.Context) error { // or its pod waits for that
			return milan.Get(ctx, namespace, quota, new(offloadingv1beta1.Quota))
		})
	}
	milan.stop()

	pod := func(namespace, name string) client.Object {
		o := shadow(name, withCPU("1m"))
		o.SetNamespace(namespace)
		o.SetLabels(map[string]string{offloadingv1beta1.LabelNodeName: "milan"}) // of several slices it takes from this one
		return o
	}
	endpoints := func(namespace, name string) client.Object {
		o := shadowSlice(name)
		o.SetNamespace(namespace)
		return o
	}
	all := []string{"milan"}
	for _, n := range namespaces {
		for i := range flood {
			name := fmt.Sprintf("%s-%d", n, i)
			milan.Create(t, pod(n, name))
			milan.Create(t, endpoints(n, name))
			milan.Create(t, unsigned(rome, "rome", name))
			all = append(all, name)
		}
	}
	milan.Create(t, pod("e-zurich", "one"))
	milan.Create(t, endpoints("e-zurich", "one"))
	milan.Create(t, unsigned(zurich, "zurich", "one"))

	var release func()
	held := map[string]*atomic.Int32{"pods": {}, "endpointslices": {}, "resourceslices": {}}
	milan.run(func(mgr ctrl.Manager) {
		release = controlplanetest.Hold(mgr, func(r *http.Request) bool {
			return r.Method != http.MethodGet && slices.ContainsFunc(append([]string{rome}, namespaces...), func(n string) bool {
				_, of, found := strings.Cut(r.URL.Path, "/namespaces/"+n+"/")
				resource, _, _ := strings.Cut(of, "/")
				count := held[resource]
				if !found || count == nil {
					return false
				}
				count.Add(1)
				return true
			})
		})
	})
	milan.acceptedAre(zurich, "milan", "one")
	for _, o := range []client.Object{new(corev1.Pod), new(discoveryv1.EndpointSlice)} {
		controlplanetest.Eventually(t, fmt.Sprintf("there is the %T of zurich", o), func(ctx context.Context) error {
			return milan.Get(ctx, "e-zurich", "one", o)
		})
	}
	for resource, least := range map[string]int32{"pods": shadowpod.Workers, "endpointslices": 1, "resourceslices": 1} {
		controlplanetest.Eventually(t, fmt.Sprintf("rome keeps workers for %s waiting", resource), func(context.Context) error {
			if got := held[resource].Load(); got < least {
				return fmt.Errorf("%d requests, of at least %d", got, least)
			}
			return nil
		})
	}
	milan.acceptedAre(rome, "milan") // or nothing was held

	release()
	milan.acceptedAre(rome, all...)
	controlplanetest.Eventually(t, "rome has all it asked for", func(ctx context.Context) error {
		for _, name := range all[1:] {
			n := name[:strings.LastIndex(name, "-")]
			for _, o := range []client.Object{new(corev1.Pod), new(discoveryv1.EndpointSlice)} {
				if err := milan.Get(ctx, n, name, o); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// acceptedAre waits until these slices of a namespace have resources, and no others.
func (s *site) acceptedAre(namespace string, want ...string) {
	s.t.Helper()
	want = slices.Sorted(slices.Values(want))
	controlplanetest.Eventually(s.t, fmt.Sprintf("of the slices in %s those accepted are %q", namespace, want), func(ctx context.Context) error {
		var list authv1beta1.ResourceSliceList
		if err := s.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var got []string
		for _, o := range list.Items {
			if len(o.Status.Resources) > 0 {
				got = append(got, o.Name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}
