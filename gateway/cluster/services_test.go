package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/services"
)

// TestReadinessArrives: what one cluster says of an endpoint is written in the other one at once, and where Services change all
// the time after the pauses on the way, which are far below the 2 s that are promised. The time is that of a bubble: no
// machine is too slow for it.
func TestReadinessArrives(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration // between changes of other Services; 0: there are none
		most  time.Duration
	}{
		"alone":        {0, 0},
		"among others": {30 * time.Millisecond, 50 * time.Millisecond},
		// Fewer altogether than may pass at once (servicesBurst): 2.6 s long at most.
		"among more than can pass in the long run": {2 * time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { readinessArrives(t, test.pause, test.most) })
		})
	}
}

func readinessArrives(t *testing.T, pause, most time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	rome, milan := newMemoryAPI(), newMemoryAPI()
	const others = 50
	for i := range others + 1 {
		rome.put(exportedServices, fmt.Sprintf("shop.web-%d", i), described(i, false))
	}
	near, far := tunnelOf(netip.MustParseAddr("169.254.18.1"), netip.MustParseAddr("169.254.18.2"))
	for _, end := range []struct {
		api    *memoryAPI
		tunnel *memoryTunnel
	}{{rome, near}, {milan, far}} {
		l := &Link{
			log: slog.New(slog.DiscardHandler), options: Options{Namespace: "tenant", ClusterID: "peer"},
			config: &rest.Config{Host: "http://api.test", Transport: end.api},
		}
		s, err := l.NewServices(end.tunnel)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(time.Minute)
	if n := milan.size(importedServices); n != others+1 {
		t.Fatalf("%d Services are imported, want %d", n, others+1)
	}
	if pause > 0 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				rome.put(exportedServices, fmt.Sprintf("shop.web-%d", 1+i%others), described(1+i%others, i/others%2 == 0))
				services.Pause(ctx, pause)
			}
		})
	}
	for i := range 20 {
		time.Sleep(70*time.Millisecond + time.Duration(i)*time.Millisecond) // at another moment of every pause
		ready, began := i%2 == 0, time.Now()
		arrived := milan.wait("shop.web-0", ready)
		rome.put(exportedServices, "shop.web-0", described(0, ready))
		select {
		case <-arrived:
		case <-time.After(time.Minute):
		}
		if lag := time.Since(began); lag > most {
			t.Errorf("change %d arrives after %v, want %v at most", i, lag, most)
		}
	}
}

// described is shop/web-N with one endpoint.
func described(n int, ready bool) networkingv1beta1.ServiceDescription {
	return networkingv1beta1.ServiceDescription{
		Namespace: "shop", Name: fmt.Sprintf("web-%d", n), Type: networkingv1beta1.ServiceClusterSetIP,
		Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
		Slices: []networkingv1beta1.ServiceSlice{{AddressType: "IPv4", Endpoints: []networkingv1beta1.ServiceEndpoint{
			{Addresses: []string{"10.243.1.2"}, Ready: ready, Serving: ready},
		}}},
	}
}

// memoryAPI answers, as an API server does, for the objects of a gateway. It is the transport of a client.
type memoryAPI struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]*networkingv1beta1.ImportedService // by resource and name; both kinds have this shape
	watches map[string][]*io.PipeWriter
	waiting map[string]chan struct{} // closed when the Service of that name is ready, or not: its key says which
}

func newMemoryAPI() *memoryAPI {
	return &memoryAPI{
		objects: map[string]map[string]*networkingv1beta1.ImportedService{exportedServices: {}, importedServices: {}},
		watches: map[string][]*io.PipeWriter{}, waiting: map[string]chan struct{}{},
	}
}

func (a *memoryAPI) size(resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.objects[resource])
}

// wait returns what is closed when the Service is written to be ready, or not.
func (a *memoryAPI) wait(name string, ready bool) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := make(chan struct{})
	a.waiting[fmt.Sprint(name, ready)] = c
	return c
}

// put creates or replaces an object, and tells those that watch.
func (a *memoryAPI) put(resource, name string, spec networkingv1beta1.ServiceDescription) *networkingv1beta1.ImportedService {
	a.mu.Lock()
	a.version++
	kind, event := "ImportedService", "MODIFIED"
	if resource == exportedServices {
		kind = "ExportedService"
	}
	if a.objects[resource][name] == nil {
		event = "ADDED"
	}
	o := &networkingv1beta1.ImportedService{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name, ResourceVersion: fmt.Sprint(a.version)}, Spec: spec,
	}
	a.objects[resource][name] = o
	watches := a.watches[resource]
	if resource == importedServices {
		key := fmt.Sprint(name, spec.Slices[0].Endpoints[0].Ready)
		if c := a.waiting[key]; c != nil {
			close(c)
			delete(a.waiting, key)
		}
	}
	a.mu.Unlock()
	for _, w := range watches {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": event, "object": o}) // one that is closed has nobody who reads
	}
	return o
}

// RoundTrip implements http.RoundTripper.
func (a *memoryAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	respond := func(body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	encode := func(v any) (*http.Response, error) {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		return respond(io.NopCloser(strings.NewReader(string(b))))
	}
	last := path.Base(r.URL.Path)
	switch {
	case r.URL.Query().Get("watch") != "":
		from, to := io.Pipe()
		context.AfterFunc(r.Context(), func() { to.CloseWithError(r.Context().Err()) })
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches[last] = append(a.watches[last], to)
		return respond(from)
	case r.Method == http.MethodGet:
		a.mu.Lock()
		defer a.mu.Unlock()
		items := []any{}
		for _, o := range a.objects[last] {
			items = append(items, o)
		}
		kind := map[string]string{exportedServices: "ExportedServiceList", importedServices: "ImportedServiceList"}[last]
		return encode(map[string]any{
			"apiVersion": networkingv1beta1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items,
		})
	case r.Method == http.MethodPost:
		var o networkingv1beta1.ImportedService
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			return nil, err
		}
		return encode(a.put(last, o.Name, o.Spec))
	case r.Method == http.MethodPatch:
		var patch []struct {
			Value networkingv1beta1.ServiceDescription `json:"value"`
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			return nil, err
		}
		return encode(a.put(importedServices, last, patch[0].Value))
	}
	return nil, fmt.Errorf("%s %s", r.Method, r.URL)
}

// memoryTunnel is one end of a tunnel in which nothing takes time.
type memoryTunnel struct {
	own, peer netip.Addr
	accept    chan net.Conn // to the listener of this end
	other     *memoryTunnel
}

func tunnelOf(a, b netip.Addr) (near, far *memoryTunnel) {
	near, far = &memoryTunnel{own: a, peer: b, accept: make(chan net.Conn)}, &memoryTunnel{own: b, peer: a, accept: make(chan net.Conn)}
	near.other, far.other = far, near
	return near, far
}

// TunnelAddrs implements services.Network, as do the next two.
func (m *memoryTunnel) TunnelAddrs() (own, peer netip.Addr) { return m.own, m.peer }

func (m *memoryTunnel) ListenTCP(netip.AddrPort) (net.Listener, error) {
	return &memoryListener{m, make(chan struct{}), sync.Once{}}, nil
}

func (m *memoryTunnel) DialTCP(ctx context.Context, _, _ netip.AddrPort) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.other.accept <- memoryConn{there, netip.AddrPortFrom(m.own, 1)}:
		return here, nil
	}
}

type memoryListener struct {
	*memoryTunnel
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return nil }

type memoryConn struct {
	net.Conn
	from netip.AddrPort
}

func (c memoryConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.from) }
