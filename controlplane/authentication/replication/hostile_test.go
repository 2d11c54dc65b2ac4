package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// page answers a list with n copies of some size, and says whether there are more.
func page(w http.ResponseWriter, first, n, size int, next string) {
	items := []any{}
	for i := range n {
		o := map[string]any{
			"apiVersion": authv1beta1.GroupVersion.String(), "kind": "ResourceSlice",
			"metadata": map[string]any{"name": fmt.Sprintf("s-%d", first+i), "namespace": between.there, "labels": map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "rome"}},
			"status":   map[string]any{"nodeLabels": map[string]string{"x": strings.Repeat("x", size)}},
		}
		items = append(items, o)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": authv1beta1.GroupVersion.String(), "kind": "ResourceSliceList", "metadata": map[string]any{"continue": next}, "items": items,
	})
}

// TestEndlessList: pages that are small enough, each by itself, are too much altogether.
func TestEndlessList(t *testing.T) {
	const size = 3 << 20
	asked := 0
	c := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		page(w, asked, 1, size, "more")
	})
	s := &session{peer: between, remote: c}
	if _, err := s.listThere(t.Context(), copied[0]); !errors.Is(err, errListingTooLong) || asked > maxListing/size+1 {
		t.Errorf("%v after %d pages", err, asked)
	}
}

// TestManyValues: what is short, and takes much memory when it is decoded, is not read to its end.
func TestManyValues(t *testing.T) {
	for name, value := range map[string]string{"objects": `{"":0}`, "arrays": "[]", "numbers": "0"} {
		t.Run(name, func(t *testing.T) {
			const most = maxAnswer / valueWeight
			c := provider(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSliceList", "metadata": {}, "items": [{"status": {"x": [0`)
				fmt.Fprint(w, strings.Repeat(","+value, 2*most), `]}}]}`)
			})
			s := &session{peer: between, remote: c}
			if _, err := s.listThere(t.Context(), copied[0]); !errors.Is(err, errAnswerTooLong) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLargeObjects: copies that are too large for one page come in smaller ones.
func TestLargeObjects(t *testing.T) {
	const all, size = 60, 200 << 10
	c := provider(t, func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			t.Error(err)
		}
		first, _ := strconv.Atoi(r.URL.Query().Get("continue")) // the first page has none
		next := ""
		if first+limit < all {
			next = strconv.Itoa(first + limit)
		}
		page(w, first, min(limit, all-first), size, next)
	})
	s := &session{peer: between, remote: c}
	got, err := s.listThere(t.Context(), copied[0])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range got {
		seen[o.GetName()] = true
	}
	if len(got) != all || len(seen) != all {
		t.Errorf("%d copies of %d names, want %d", len(got), len(seen), all)
	}
}

// TestRestlessWatch: a provider that tells of changes all the time has both sides compared once a second, no more often, and
// less often if it has much to read.
func TestRestlessWatch(t *testing.T) {
	const minute = 60
	t.Run("little", func(t *testing.T) { testRestlessWatch(t, 0, minute/2, comparisons+minute+1) })
	t.Run("much", func(t *testing.T) {
		testRestlessWatch(t, 3*maxRate, minute/(3*len(copied))-1, minute/(3*len(copied))+1)
	})
}

// testRestlessWatch has so much read by each list, and both sides compared so often in a minute.
func testRestlessWatch(t *testing.T, read int64, atLeast, atMost int) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		var s *session
		restless := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				lists++
				s.read += read
				return nil
			},
			Watch: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
				w := watch.NewFake()
				go func() {
					for ctx.Err() == nil {
						w.Modify(new(unstructured.Unstructured))
						time.Sleep(time.Millisecond)
					}
					w.Stop()
				}()
				return w, nil
			},
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		local := fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build()
		s = newSession(between, copied, local, restless, logr.Discard(), func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		s.run(ctx)
		if compared := lists / len(copied); compared > atMost || compared < atLeast {
			t.Errorf("compared %d times in a minute", compared)
		}
	})
}

// TestStatusThatIsNone: what would end the watches of this cluster, or fill it, is not taken over; other answers are.
func TestStatusThatIsNone(t *testing.T) {
	for name, status := range map[string]string{
		"an amount that the schema lets pass": `{"resources": {"cpu": "1e1.5"}}`,
		"a time that the schema lets pass":    `{"conditions": [{"type": "Resources", "status": "Accepted", "lastTransitionTime": "2026-01-01t00:00:00z"}]}`,
		"conditions that are none":            `{"conditions": "x"}`,
		"nested":                              `{"resources": {"cpu": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}`,
		"too long":                            `{"nodeLabels": {"x": "` + strings.Repeat("x", maxStatus) + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var answers []answer
			local := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithStatusSubresource(new(authv1beta1.ResourceSlice))
			for _, one := range []struct{ name, status string }{{"bad", status}, {"good", `{"nodeLabels": {"region": "south"}}`}} {
				here, there := object(t, original), object(t, original)
				delete(here.Object, "status")
				var value any
				if err := json.Unmarshal([]byte(one.status), &value); err != nil {
					t.Fatal(err)
				}
				here.SetName(one.name)
				here.SetResourceVersion("")
				there.Object["status"] = value
				local.WithObjects(&here)
				answers = append(answers, answer{&here, &there})
			}
			s := &session{peer: between, local: local.Build()}
			for _, a := range answers {
				err := s.answer(t.Context(), a)
				if none := new(answerError); errors.As(err, &none) != (a.here.GetName() == "bad") || none.err == nil && err != nil {
					t.Errorf("%s: %v", a.here.GetName(), err)
				}
				got := new(authv1beta1.ResourceSlice)
				if err := s.local.Get(t.Context(), client.ObjectKeyFromObject(a.here), got); err != nil {
					t.Fatal(err)
				}
				if n := len(got.Status.NodeLabels) + len(got.Status.Resources) + len(got.Status.Conditions); n != 0 != (a.here.GetName() == "good") {
					t.Errorf("%s has the status %+v", a.here.GetName(), got.Status)
				}
			}
		})
	}
}

// TestManyFailures: of the words of a provider that refuses everything a few are kept.
func TestManyFailures(t *testing.T) {
	var f failures
	for i := range 1000 {
		f.add(fmt.Errorf("refused %d", i))
		f.add(nil)
	}
	if text := errors.Join(f...).Error(); strings.Count(text, "\n") != maxFailures-1 {
		t.Errorf("told: %s", text)
	}
}

// TestSilentProvider: an API server that takes requests and answers none holds up neither other providers nor the end
// of its own session.
func TestSilentProvider(t *testing.T) {
	silent := make(chan struct{})
	var asked sync.Once
	waiting := make(chan struct{})
	c := provider(t, func(_ http.ResponseWriter, r *http.Request) {
		asked.Do(func() { close(waiting) })
		select {
		case <-r.Context().Done():
		case <-silent:
		}
	})
	t.Cleanup(func() { close(silent) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		newSession(between, copied, fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build(), c, logr.Discard(), func(error) {}).run(ctx)
	}()
	<-waiting
	served := make(chan struct{})
	var once sync.Once
	other := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(served) })
		page(w, 0, 0, 0, "")
	})
	go newSession(between, copied, fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build(), other, logr.Discard(), func(error) {}).run(ctx)
	<-served
	stop()
	<-ended
}
