package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// soon is how long a test waits for what should happen at once.
const soon = 20 * time.Second

// apiServer has InternalNodes, two on a page, and can be away.
type apiServer struct {
	t *testing.T

	mu      sync.Mutex
	nodes   []*networkingv1beta1.InternalNode
	away    bool
	queries []string
	agent   string
	watches map[chan *networkingv1beta1.InternalNode]bool // closed: end of the watch
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/networking.liqo.io/v1beta1/namespaces/ns/internalnodes" {
		s.t.Errorf("asked for %s", r.URL.Path)
	}
	s.mu.Lock()
	s.agent = r.UserAgent()
	q := r.URL.Query()
	query := fmt.Sprintf("watch=%s labels=%s fields=%s continue=%s", q.Get("watch"), q.Get("labelSelector"), q.Get("fieldSelector"), q.Get("continue"))
	if !slices.Contains(s.queries, query) {
		s.queries = append(s.queries, query)
	}
	w.Header().Set("Content-Type", "application/json")
	if s.away {
		s.mu.Unlock()
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if q.Get("watch") == "" {
		defer s.mu.Unlock()
		s.list(w, q.Get("continue"))
		return
	}
	events := make(chan *networkingv1beta1.InternalNode, 10)
	s.watches[events] = true
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			delete(s.watches, events)
			s.mu.Unlock()
			return
		case n, ok := <-events:
			if !ok {
				return
			}
			if err := json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": n}); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// list writes a page of two.
func (s *apiServer) list(w http.ResponseWriter, from string) {
	list := networkingv1beta1.InternalNodeList{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: "InternalNodeList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "10"},
	}
	nodes := s.nodes
	if from != "" {
		nodes = nodes[2:]
	} else if len(nodes) > 2 {
		nodes, list.Continue = nodes[:2], "more"
	}
	for _, n := range nodes {
		list.Items = append(list.Items, *n)
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.t.Error(err)
	}
}

func (s *apiServer) add(n *networkingv1beta1.InternalNode) {
	n.TypeMeta = metav1.TypeMeta{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: "InternalNode"}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, n)
	for w := range s.watches {
		w <- n
	}
}

// setAway ends all watches, and refuses new ones while it is away.
func (s *apiServer) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
	for w := range s.watches {
		close(w)
		delete(s.watches, w)
	}
}

// A program sees everything once all lists are there, every change, and nothing
// vanishes while the API server is away.
func TestMirror(t *testing.T) {
	defer goleak.VerifyNone(t)
	api := &apiServer{t: t, watches: make(map[chan *networkingv1beta1.InternalNode]bool), away: true}
	for i, name := range []string{"c", "b", "not-ours", "a"} {
		api.add(node(name, fmt.Sprint(i), time.Duration(i)*time.Minute))
	}
	server := httptest.NewServer(api)
	defer server.Close()
	clients, err := NewClients(&rest.Config{Host: server.URL}, "sluice-test",
		Group{Version: networkingv1beta1.GroupVersion, AddToScheme: networkingv1beta1.AddToScheme})
	if err != nil {
		t.Fatal(err)
	}
	defer clients.Disconnect()

	m := New(slog.New(slog.DiscardHandler))
	nodes := NewStore[networkingv1beta1.InternalNode]()
	nodes.Keep = func(n *networkingv1beta1.InternalNode) bool { return n.Name != "not-ours" }
	Add(m, Watched{
		Client: clients.For(networkingv1beta1.GroupVersion), Resource: "internalnodes", Namespace: "ns", Labels: "l=1", Fields: "metadata.name!=x",
	}, nodes)
	changed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		m.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	defer wg.Wait()
	defer cancel()
	gather := func() manifests.Objects { return manifests.Objects{InternalNodes: Sourced(nodes)} }
	names := func(r manifests.Reading) (out []string) {
		for _, n := range r.Objects.InternalNodes {
			out = append(out, n.Object.Name)
		}
		return out
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		deadline := time.After(soon)
		for !ok() {
			select {
			case <-changed:
			case <-time.After(10 * time.Millisecond):
			case <-deadline:
				t.Fatalf("%s: did not happen: %+v", what, m.State())
			}
		}
	}

	wait("no contact", func() bool { return !m.State().Away.IsZero() })
	_, err = m.Read(manifests.Digest{}, gather)
	if waiting := (manifests.Waiting{}); !errors.As(err, &waiting) || !strings.HasPrefix(err.Error(), "cannot read from the API server yet: ") {
		t.Errorf("without an API server: %v", err)
	}
	api.setAway(false)
	wait("contact", func() bool { return m.State().Connected })
	first, err := m.Read(manifests.Digest{}, gather)
	if err != nil || !first.Heavy {
		t.Errorf("first reading: heavy is %v, %v", first.Heavy, err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(first)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	want := State{Connected: true, Watches: []WatchState{{Name: "internalnodes in ns", Objects: 3, Synced: true}}}
	if diff := cmp.Diff(want, m.State()); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}

	// A change.
	wait("watch", func() bool { api.mu.Lock(); defer api.mu.Unlock(); return len(api.watches) == 1 })
	api.add(node("d", "20", time.Hour))
	next := first
	wait("a new object", func() bool {
		next, err = m.Read(first.Digest, gather)
		return err == nil && next.Digest != first.Digest
	})
	if diff := cmp.Diff([]string{"d", "a", "b", "c"}, names(next)); diff != "" || next.Heavy {
		t.Errorf("objects after a change, heavy is %v (-want +got):\n%s", next.Heavy, diff)
	}

	// Away: everything stays.
	api.setAway(true)
	wait("the loss of the contact", func() bool { return !m.State().Connected })
	if again, err := m.Read(next.Digest, gather); err != nil || again.Digest != next.Digest || again.Objects.InternalNodes != nil {
		t.Errorf("away: %+v, %v", again, err)
	}
	api.setAway(false)
	wait("contact again", func() bool { return m.State().Connected })

	api.mu.Lock()
	defer api.mu.Unlock()
	if api.agent != "sluice-test" {
		t.Errorf("user agent %q", api.agent)
	}
	for _, q := range []string{
		"watch= labels=l=1 fields=metadata.name!=x continue=", "watch= labels=l=1 fields=metadata.name!=x continue=more",
		"watch=true labels=l=1 fields=metadata.name!=x continue=",
	} {
		if !slices.Contains(api.queries, q) {
			t.Errorf("never asked %q but %q", q, api.queries)
		}
	}
}

// Changes are passed on together, and at most four times a second.
func TestMirrorPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var told []time.Duration
		done := make(chan struct{})
		go func() { m.Run(ctx, func() { told = append(told, time.Since(start)) }); close(done) }()
		m.Changed()
		m.Changed()
		time.Sleep(time.Hour)
		for range 100 { // one every 10 ms
			m.Changed()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		cancel()
		<-done
		ms := time.Millisecond
		want := []time.Duration{settle}
		for i := range 5 {
			want = append(want, time.Hour+settle+time.Duration(i)*250*ms)
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// A store that is not followed has no objects.
func TestSourcedOfNothing(t *testing.T) {
	var s *Store[networkingv1beta1.InternalNode, *networkingv1beta1.InternalNode]
	if got := Sourced(s); got != nil {
		t.Errorf("got %v", got)
	}
}
