package controlplanetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// kubeletServer is what the API server asks on a node: `kubectl exec` and
// `kubectl logs` come here.
type kubeletServer struct {
	k    *Kubelet
	node string
	http *http.Server
	port int32

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // of requests, also of those whose connection is no longer HTTP's
}

// startServers lets every node serve until the test ends.
func (k *Kubelet) startServers(ctx context.Context, tb testing.TB) error {
	cert, err := tls.LoadX509KeyPair(k.cluster.plane.KubeletCert, k.cluster.plane.KubeletKey)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AddCert(cert.Leaf)
	for i := range k.nodes {
		n := &k.nodes[i]
		s, err := k.startServer(ctx, n, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
		if err != nil {
			return err
		}
		tb.Cleanup(s.stop)
		n.kubelet = s.port
	}
	return nil
}

func (k *Kubelet) startServer(ctx context.Context, n *Node, config *tls.Config) (*kubeletServer, error) {
	l, err := net.Listen("tcp4", netip.AddrPortFrom(n.IP, 0).String())
	if err != nil {
		return nil, err
	}
	s := &kubeletServer{k: k, node: n.Name, port: int32(l.Addr().(*net.TCPAddr).Port)}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", s.exec)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	config.NextProtos = []string{"http/1.1"} // what is upgraded
	s.http = &http.Server{
		Handler: s.counted(mux), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: apiTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
		},
	}
	s.wg.Go(func() { _ = s.http.Serve(tls.NewListener(watchedListener{l}, config)) }) // stop ends it
	return s, nil
}

// stop ends the server, and waits for what runs in it.
func (s *kubeletServer) stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.http.Close()
	s.wg.Wait()
}

// counted lets stop wait for requests.
func (s *kubeletServer) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.wg.Add(1)
			defer s.wg.Done()
		}
		s.mu.Unlock()
		if closed {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// find returns the container that a request is about, and answers for it where
// there is none.
func (s *kubeletServer) find(w http.ResponseWriter, r *http.Request) (*podWorker, *container) {
	namespace, pod, name := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	for _, o := range s.k.workers {
		if o.namespace != namespace || o.name != pod || o.node() != s.node {
			continue
		}
		for _, c := range o.containers {
			if c.spec.Name == name {
				return o, c
			}
		}
	}
	http.Error(w, fmt.Sprintf("container %q of pod \"%s/%s\" is not here", name, namespace, pod), http.StatusNotFound)
	return nil, nil
}

func (s *kubeletServer) exec(w http.ResponseWriter, r *http.Request) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	worker, c := s.find(w, r)
	if c == nil {
		return
	}
	const idle = 4 * time.Hour
	r = r.WithContext(untilGone(r.Context()))
	remotecommand.ServeExec(w, r, executor{worker, c}, worker.name, string(worker.uid), c.spec.Name, r.URL.Query()["command"], o,
		idle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// connKey is where a request's context has its connection.
type connKey struct{}

// untilGone returns a context that ends with the connection of a request. The
// one of net/http does not, once the connection speaks another protocol.
func untilGone(ctx context.Context) context.Context {
	c := ctx.Value(connKey{}).(*watchedConn)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(c.gone, cancel)
	return ctx
}

// watchedListener accepts connections that tell when they are over.
type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: c}
	w.gone, w.over = context.WithCancel(context.Background())
	return w, nil
}

// watchedConn is a connection with a context that ends when it does.
type watchedConn struct {
	net.Conn
	gone context.Context
	over context.CancelFunc
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if timeout, ok := err.(net.Error); err != nil && !(ok && timeout.Timeout()) { //lint:ignore errorlint a timeout comes unwrapped, and is how net/http takes a connection back
		c.over()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.over()
	return c.Conn.Close()
}

// endpoints is where the node says that its kubelet listens.
func (n Node) endpoints() corev1.NodeDaemonEndpoints {
	return corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.kubelet}}
}
