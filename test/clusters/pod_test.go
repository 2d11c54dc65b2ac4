package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// podImage is the image of pods that are TCP/IP stacks in this process.
const podImage = "sluice-test/pod:latest"

// podNamespace is where they live, in both clusters.
const podNamespace = "workload"

// pod is a pod of a user, with an HTTP server and an echo server.
type pod struct {
	*netstack.Stack
	name string
	addr netip.Addr // in its own cluster
}

const (
	httpPort = 80
	echoPort = 7
)

// startPod starts a pod on a node, counted from 0. Its object ends with the
// test, or earlier with remove.
func (s *side) startPod(t *testing.T, name string, on int) *pod {
	t.Helper()
	n := s.fabric.nodes[on]
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: podNamespace},
		Spec:       corev1.PodSpec{NodeName: n.info.Name, Containers: []corev1.Container{{Name: "pod", Image: podImage}}},
	}
	if err := s.Client.Create(t.Context(), object); err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
	controlplanetest.Eventually(t, "pod "+name+" has an address", func(ctx context.Context) error {
		if err := s.Get(ctx, podNamespace, name, object); err != nil {
			return err
		}
		if object.Status.PodIP == "" {
			return errors.New("none yet")
		}
		return nil
	})
	p := &pod{name: s.id + "/" + name, addr: netip.MustParseAddr(object.Status.PodIP)}
	var err error
	if p.Stack, err = n.sim.AddPod(p.addr); err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
	t.Cleanup(func() {
		n.sim.RemovePod(p.Stack)
		ctx, cancel := context.WithTimeout(context.Background(), controlplanetest.Patience)
		defer cancel()
		if err := s.Client.Delete(ctx, object); err != nil {
			t.Errorf("delete pod %s: %v", name, err)
		}
	})
	p.serve(t)
	return p
}

// serve answers every HTTP request with the pod's name, or with a stream of it,
// and echoes TCP.
func (p *pod) serve(t *testing.T) {
	t.Helper()
	web, err := p.ListenTCP(netip.AddrPortFrom(p.addr, httpPort))
	if err != nil {
		t.Fatalf("listen in pod %s: %v", p.name, err)
	}
	echo, err := p.ListenTCP(netip.AddrPortFrom(p.addr, echoPort))
	if err != nil {
		t.Fatalf("listen in pod %s: %v", p.name, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s greets %s", p.name, r.RemoteAddr)
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, bulk)) // the client counts
	})
	server := &http.Server{Handler: mux}
	go server.Serve(web)
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		server.Close()
		echo.Close()
	})
}

// bulk is how much /bytes returns: more than fits into all buffers on the way.
const bulk = 8 << 20

// client is an HTTP client in the pod.
func (p *pod) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: p.DialContext, DisableKeepAlives: true}}
}

// fetch gets a page from a pod of the other cluster, at the address that it has
// here.
func (p *pod) fetch(ctx context.Context, at netip.Addr, path string) (string, error) {
	url := "http://" + netip.AddrPortFrom(at, httpPort).String() + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := p.client().Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// attempt bounds one try to reach a pod: TCP repeats a lost SYN after a second.
const attempt = 4 * time.Second

// reach checks that a page of a pod can be had at an address, and that the other
// pod sees from.
func (p *pod) reach(ctx context.Context, to *pod, at, from netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	body, err := p.fetch(ctx, at, "/")
	if err != nil {
		return fmt.Errorf("%s fetches from %s at %s: %w", p.name, to.name, at, err)
	}
	var name, remote string
	if _, err := fmt.Sscanf(body, "%s greets %s", &name, &remote); err != nil {
		return fmt.Errorf("%s got %q from %s", p.name, body, at)
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil || name != to.name || host != from.String() {
		return fmt.Errorf("%s at %s says %q, want %s to greet %s", p.name, at, body, to.name, from)
	}
	return nil
}
