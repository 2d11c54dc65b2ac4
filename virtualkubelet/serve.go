package virtualkubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

const (
	// clientCAName is the ConfigMap in kube-system in which an API server publishes the authorities whose certificates
	// it takes from clients, clientCAKey its entry for them.
	clientCAName = "extension-apiserver-authentication"
	clientCAKey  = "client-ca-file"
	// endingStreams is how long streams may go on when the process ends.
	endingStreams = 300 * time.Millisecond
)

// server is the kubelet API of all nodes of the process: what `kubectl logs`, `exec`, `attach` and `port-forward` need,
// and a metrics-server. It carries requests about a pod to the provider's API server, with the identity of the node's
// slice.
//
// As a kubelet does, it takes a caller for who its client certificate says, by the authorities of the API server, and
// asks the API server whether that user may: verb on nodes/proxy of the pod's node. What is about the use of resources
// it tells those too whom the API server knows by a bearer token, if they may get nodes/metrics or nodes/stats. Without
// authorities it answers nobody.
type server struct {
	k           *Kubelet
	authorities *follower[corev1.ConfigMap, *corev1.ConfigMap]
	// certificate is one that the cluster has signed for a node, or, until there is one, one that the process has signed
	// itself, which is enough for an API server that verifies none.
	certificate *atomic.Pointer[tls.Certificate]
	tokens      reviews
	counters    counters

	mu   sync.Mutex
	pem  string // what pool was made of
	pool *x509.CertPool
}

// serve answers the API server on l until ctx ends. The certificate is what the server shows.
func (k *Kubelet) serve(ctx context.Context, l net.Listener, certificate *atomic.Pointer[tls.Certificate]) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f, err := follow(ctx, &wg, mirror.Watched{
		Client: k.home.core, Resource: "configmaps", Namespace: metav1.NamespaceSystem, Fields: "metadata.name=" + clientCAName,
	}, k.log, func(*corev1.ConfigMap) {})
	if err != nil {
		return err
	}
	s := &server{k: k, authorities: f, certificate: certificate, tokens: newReviews()}
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	h := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog:    log.New(io.Discard, "", 0), // of callers without a certificate, which must not fill the log
		BaseContext: func(net.Listener) context.Context { return requests },
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, // what is upgraded
			GetConfigForClient: s.tlsConfig,
		},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2: it has no upgrades
	}
	served := make(chan error, 1)
	go func() { served <- h.ServeTLS(l, "", "") }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		end()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingStreams)
	defer cancel()
	if h.Shutdown(limit) != nil {
		h.Close()
	}
	<-served
	return nil
}

// tlsConfig takes certificates of the authorities that the API server has now, and of no others.
func (s *server) tlsConfig(*tls.ClientHelloInfo) (*tls.Config, error) {
	pool, err := s.clientCAs()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{*s.certificate.Load()},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
	}, nil
}

// clientCAs are the authorities whose certificates count.
func (s *server) clientCAs() (*x509.CertPool, error) {
	m := s.authorities.get(metav1.NamespaceSystem, clientCAName)
	if m == nil || m.Data[clientCAKey] == "" {
		return nil, fmt.Errorf("the ConfigMap %s/%s is not there, has no %s, or may not be read: nobody is answered", metav1.NamespaceSystem, clientCAName, clientCAKey)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := m.Data[clientCAKey]; text != s.pem || s.pool == nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(text)) {
			return nil, fmt.Errorf("ConfigMap %s/%s: %s has no certificate", metav1.NamespaceSystem, clientCAName, clientCAKey)
		}
		s.pem, s.pool = text, pool
	}
	return s.pool, nil
}

// stream is one kind of request about a pod.
type stream struct {
	subresource string // of the pod at the provider
	// query are the parameters that go on, by their name in a kubelet's API.
	query map[string]string
}

var (
	logs = stream{"log", map[string]string{
		"follow": "follow", "previous": "previous", "sinceSeconds": "sinceSeconds", "sinceTime": "sinceTime", "timestamps": "timestamps",
		"tailLines": "tailLines", "limitBytes": "limitBytes", "stream": "stream",
	}}
	exec        = stream{"exec", map[string]string{"command": "command", "input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}}
	attach      = stream{"attach", map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}}
	portForward = stream{"portforward", map[string]string{"port": "ports"}}
)

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.carry(logs))
	for _, uid := range []string{"", "/{uid}"} {
		mux.HandleFunc("/exec/{namespace}/{pod}"+uid+"/{container}", s.carry(exec))
		mux.HandleFunc("/attach/{namespace}/{pod}"+uid+"/{container}", s.carry(attach))
		mux.HandleFunc("/portForward/{namespace}/{pod}"+uid, s.carry(portForward))
	}
	mux.HandleFunc("GET /metrics/resource", s.resources)
	mux.HandleFunc("GET /stats/summary", s.summary)
	return mux
}

// target is a pod at the provider.
type target struct {
	node, namespace, pod string
	session              *session
}

// find returns where a pod runs. A pod of the provider's own that has its name is not the pod.
func (k *Kubelet) find(namespace, name string) (target, error) {
	for _, n := range k.all() {
		s, pods := n.own()
		if pods == nil {
			continue
		}
		here := pods.get(namespace, name)
		if here == nil {
			continue
		}
		there, standing := stand(k.namespaceMap(), namespace)
		if sp := s.space(namespace); standing == mapped && sp.synced() && sp.there == there {
			if copied := sp.pods.get(there, name); copied != nil && !reflection.IsOfAnother(here, copied) {
				return target{n.name, there, name, s}, nil
			}
		}
		return target{node: n.name}, fmt.Errorf("pod %s/%s is not at the provider now", namespace, name)
	}
	return target{}, fmt.Errorf("no pod %s/%s is on a virtual node of this process", namespace, name)
}

// carry answers requests of one kind.
func (s *server) carry(kind stream) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, code, why := s.identify(r, false)
		if code != 0 {
			refuse(w, code, why)
			return
		}
		to, err := s.k.find(r.PathValue("namespace"), r.PathValue("pod"))
		if to.node == "" {
			// Whether there is such a pod is only for those who may ask about some node.
			to.node = "-"
		}
		if code, why := s.authorize(r.Context(), who, to.node, "proxy", r.Method); code != 0 {
			refuse(w, code, why)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		transport, err := to.session.streams()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		target := kind.url(to, r.PathValue("container"), r.URL.Query())
		proxy := httputil.ReverseProxy{
			Transport: transport, FlushInterval: -1,
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL, p.Out.Host = target, target.Host
				p.Out.Header = streamHeaders(p.Out.Header)
				if strings.HasPrefix(strings.ToUpper(p.Out.Header.Get("Upgrade")), "SPDY/") {
					p.Out.Method = http.MethodPost // which the provider's role allows
				}
			},
			ErrorLog: log.New(io.Discard, "", 0),
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "the provider's API server does not answer: "+mirror.PlainError(err), http.StatusBadGateway)
			},
		}
		proxy.ServeHTTP(w, r)
	}
}

// url is that of the same request at the provider.
func (kind stream) url(to target, container string, query url.Values) *url.URL {
	u := *to.session.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/api/v1/namespaces/" + to.namespace + "/pods/" + to.pod + "/" + kind.subresource
	out := url.Values{}
	if container != "" {
		out.Set("container", container)
	}
	for name, there := range kind.query {
		for _, v := range query[name] {
			if slices.Contains([]string{"stdin", "stdout", "stderr", "tty"}, there) {
				v = fmt.Sprint(v == "1" || v == "true") // a kubelet says 1
			}
			out.Add(there, v)
		}
	}
	u.RawQuery = out.Encode()
	return &u
}

// streamHeaders are the headers that belong to a stream. All others stay here: above all those that say who somebody
// is.
func streamHeaders(in http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{"Connection", "Upgrade", "X-Stream-Protocol-Version", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions", "Content-Length", "Content-Type"} {
		if v := in.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// streams is the way to the provider's API server for requests that are upgraded.
func (s *session) streams() (http.RoundTripper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upgrades == nil {
		c := rest.CopyConfig(s.config)
		c.NextProtos = []string{"http/1.1"}
		t, err := rest.TransportFor(c)
		if err != nil {
			return nil, fmt.Errorf("build the way to the provider: %w", err)
		}
		s.upgrades = t
	}
	return s.upgrades, nil
}

// baseURL is that of an API server.
func baseURL(c *rest.Config) (*url.URL, error) {
	u, err := url.Parse(c.Host)
	if err != nil || u.Host == "" {
		return nil, cmp.Or(err, errors.New("the server is no URL"))
	}
	return u, nil
}
