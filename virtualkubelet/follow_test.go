package virtualkubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/objects/mirror"
)

// hostile is a client of an API server that answers as it likes.
func hostile(t *testing.T, answer http.HandlerFunc) rest.Interface {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, QPS: -1}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return boundedAnswers{rt} })
	clients, err := mirror.NewClients(cfg, component, groups...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clients.Disconnect)
	return clients.For(corev1.SchemeGroupVersion)
}

// followPods follows the pods of a provider until over is told something, and returns that.
func followPods(t *testing.T, client rest.Interface) (*follower[corev1.Pod, *corev1.Pod], error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	told := make(chan error, 1)
	f, err := followThere(ctx, &wg, mirror.Watched{Client: client, Resource: "pods", Namespace: "shop-rome"}, slog.New(slog.DiscardHandler), onlyMetadata, func(*corev1.Pod) {},
		func(err error) {
			select {
			case told <- err:
			default:
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	return f, <-told
}

// A provider whose lists never end is given up.
func TestListWithoutEnd(t *testing.T) {
	asked, lists, pages := 0, 0, 0
	f, err := followPods(t, hostile(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Query().Get("continue") == "" {
			lists++
		}
		if lists == 1 { // it may have begun another one by the time that this test ends it
			pages++
		}
		items := make([]string, 1000) // more than were asked for
		for i := range items {
			items[i] = fmt.Sprintf(`{"metadata":{"namespace":"shop-rome","name":"p%d-%d"}}`, asked, i)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1","continue":"more"},"items":[%s]}`, strings.Join(items, ","))
	}))
	if !errors.As(err, new(*tooManyError)) || !strings.Contains(err.Error(), "more than 50000 pods in shop-rome") {
		t.Errorf("got %v", err)
	}
	if f.synced() || pages != maxHeld/1000+1 {
		t.Errorf("synced %v, after %d pages", f.synced(), pages)
	}
}

// So is one that makes more and more of them while it is watched. What there was is still there.
func TestWatchWithoutEnd(t *testing.T) {
	listed := false
	f, err := followPods(t, hostile(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "true" {
			if listed {
				<-r.Context().Done() // the next list would begin anew
				return
			}
			listed = true
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop-rome","name":"p%d","resourceVersion":"%d"}}}`, i, i+2); err != nil {
				return
			}
		}
	}))
	if !errors.As(err, new(*tooManyError)) {
		t.Errorf("got %v", err)
	}
	// The handler that counts is behind the watch.
	if n := len(f.list()); n < maxHeld {
		t.Errorf("%d are held", n)
	}
}

// An answer without an end is not read to its end.
func TestAnswerWithoutEnd(t *testing.T) {
	client := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	if _, err := client.Get().Resource("pods").DoRaw(t.Context()); !errors.Is(err, errAnswerTooLong) {
		t.Errorf("got %v", err)
	}
	exact := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader("abc")), left: 3}
	if text, err := io.ReadAll(exact); string(text) != "abc" || err != nil {
		t.Errorf("one that just fits: %q, %v", text, err)
	}
}

// An API server that has restarted can be watched from no version before its own. What is listed then is what there is then,
// and not what there was at the version that was known last.
func TestListedAnew(t *testing.T) {
	var restarted atomic.Bool
	client := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.Get("watch") == "true" && q.Get("resourceVersion") == "1":
			restarted.Store(true)
			fmt.Fprint(w, `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}}`)
		case q.Get("watch") == "true":
			<-r.Context().Done()
		case !restarted.Load(), q.Get("limit") != "" && q.Get("resourceVersion") != "": // with a limit exactly that version
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"shop-rome","name":"web","resourceVersion":"1"}}]}`)
		default:
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}`)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	changed := make(chan struct{}, 1000)
	f, err := followThere(ctx, &wg, mirror.Watched{Client: client, Resource: "pods", Namespace: "shop-rome"}, slog.New(slog.DiscardHandler), onlyMetadata[corev1.Pod],
		func(*corev1.Pod) { changed <- struct{}{} }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for limit := time.After(time.Minute); ; {
		select {
		case <-changed:
			if restarted.Load() && len(f.list()) == 0 {
				return
			}
		case <-limit:
			t.Fatalf("there are still %d pods", len(f.list()))
		}
	}
}

// TestThrough stops a watch while an event waits that nobody reads any more, as a reflector does.
func TestThrough(t *testing.T) {
	from := watch.NewFakeWithChanSize(2, false)
	var wg sync.WaitGroup
	seen := make(chan bool, 2)
	to := through(&wg, from, func(e watch.Event) watch.Event {
		seen <- true
		return watch.Event{Type: watch.Error, Object: e.Object}
	})
	from.Add(new(corev1.Pod))
	if e := <-to.ResultChan(); e.Type != watch.Error {
		t.Errorf("%+v is not what was made of it", e)
	}
	from.Add(new(corev1.Pod))
	<-seen
	<-seen
	to.Stop()
	wg.Wait()
	if !from.IsStopped() {
		t.Error("the watch at the API server goes on")
	}
	for range to.ResultChan() {
		t.Error("an event after the end")
	}

	from = watch.NewFakeWithChanSize(0, false)
	to = through(&wg, from, func(e watch.Event) watch.Event { return e })
	from.Stop()
	wg.Wait()
	if _, more := <-to.ResultChan(); more {
		t.Error("an event of a watch that ended")
	}
}
