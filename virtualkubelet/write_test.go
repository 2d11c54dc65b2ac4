package virtualkubelet

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/reflection"
)

// answered is a resource of a provider that answers requests with these codes, in turn, and what was asked: the method, and of
// what is applied the version.
func answered(t *testing.T, codes ...int) (resource, func() []string) {
	var asked []string
	client := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		var o metav1.PartialObjectMetadata
		if r.Method == http.MethodPatch {
			_ = json.NewDecoder(r.Body).Decode(&o)
		}
		asked = append(asked, r.Method+o.ResourceVersion)
		code := http.StatusTeapot
		if len(asked) <= len(codes) {
			code = codes[len(asked)-1]
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: int32(code), Reason: map[int]metav1.StatusReason{
			http.StatusConflict: metav1.StatusReasonConflict, http.StatusNotFound: metav1.StatusReasonNotFound,
		}[code]})
	})
	return resource{client, "configmaps", new(made)}, func() []string { return asked }
}

var settings = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "settings", UID: "1"}}

// TestApplyNone makes an object of which the cache has nothing.
func TestApplyNone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		codes []int
		asked []string
		fails func(error) bool
	}{
		{"there is none", []int{200}, []string{"PATCH1"}, func(err error) bool { return err == nil }},
		{"there is one of somebody else", []int{409, 200}, []string{"PATCH1", "GET"}, func(err error) bool { return errors.As(err, new(*foreignError)) }},
		{"there is none, and the server takes no version", []int{409, 404, 200}, []string{"PATCH1", "GET", "PATCH"}, func(err error) bool { return err == nil }},
		{"somebody is faster", []int{409, 404, 409}, []string{"PATCH1", "GET", "PATCH"}, apierrors.IsConflict},
	} {
		r, asked := answered(t, tt.codes...)
		wrote, err := r.apply(t.Context(), reflection.Peering{Consumer: "rome", Provider: "milan"}, settings, nil)
		if !tt.fails(err) || wrote != (err == nil) || !slices.Equal(asked(), tt.asked) {
			t.Errorf("%s: %t, %v, asked %q", tt.name, wrote, err, asked())
		}
		if r.justMade(settings.Namespace, settings.Name) != wrote {
			t.Errorf("%s: remembered otherwise", tt.name)
		}
	}
}

// TestMade: an object that was made is not made again while the cache may be late, unless it was seen or deleted since.
func TestMade(t *testing.T) {
	peering := reflection.Peering{Consumer: "rome", Provider: "milan"}
	seen := settings.DeepCopy()
	seen.Labels = peering.Marks()
	for name, since := range map[string]func(r resource) error{
		"seen":    func(r resource) error { _, err := r.apply(t.Context(), peering, settings, seen); return err },
		"deleted": func(r resource) error { return r.delete(t.Context(), settings, nil) },
	} {
		r, asked := answered(t, 200, 200, 200)
		if _, err := r.apply(t.Context(), peering, settings, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.apply(t.Context(), peering, settings, nil); !errors.Is(err, errNotListed) {
			t.Errorf("%s: made again at once: %v", name, err)
		}
		if err := since(r); err != nil {
			t.Fatal(err)
		}
		if wrote, err := r.apply(t.Context(), peering, settings, nil); !wrote || err != nil {
			t.Errorf("%s, and wanted again: %t, %v, asked %q", name, wrote, err, asked())
		}
	}
}

// TestRemember: what was made is remembered for a time, each by its kind, namespace and name; and then it takes no room.
func TestRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resource{name: "configmaps", made: new(made)}
		r.remember("shop", "a")
		if other := (resource{name: "secrets", made: r.made}); !r.justMade("shop", "a") || r.justMade("shop", "b") || r.justMade("bank", "a") || other.justMade("shop", "a") {
			t.Errorf("remembered: %v", r.made.at)
		}
		time.Sleep(late)
		if !r.justMade("shop", "a") {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Nanosecond)
		if r.justMade("shop", "a") {
			t.Error("never forgotten")
		}
		if r.remember("shop", "b"); len(r.made.at) != 1 {
			t.Errorf("held: %v", r.made.at)
		}
	})
	none := resource{name: "nodes"}
	none.remember("", "a")
	if none.forget("", "a"); none.justMade("", "a") {
		t.Error("one that remembers nothing does")
	}
}
