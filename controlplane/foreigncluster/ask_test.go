package foreigncluster

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
)

// served is a kubeconfig for a server.
func served(s *httptest.Server) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return []byte(strings.Replace(kubeconfig(s.URL), "cluster: {", "cluster: {certificate-authority-data: "+base64.StdEncoding.EncodeToString(ca)+", ", 1))
}

// asked is the answer of a provider. A busy machine may take longer than one is waited for: then it is asked again.
func asked(t *testing.T, p *provider) (a Answer) {
	t.Helper()
	for range 10 {
		if a = p.ask(t.Context()); a.Problem != inTime {
			break
		}
	}
	return a
}

// raw answers with a text, and nothing else.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte(answer)) // it may hear enough
	}
}

func TestAsk(t *testing.T) {
	var elsewhere atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) }))
	defer other.Close()
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		says   string // "" if it serves
	}{
		{"it serves", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/livez" || r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusTeapot)
			}
		}, ""},
		{"it does not let ask", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, ""},
		{"it does not know us", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "does not accept the credentials"},
		{"it is not well", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "status 500"},
		{"it sends us elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "status 302"},
		{"it talks without end", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat("x", 1<<20))
			}
		}, ""},
		{"it speaks no HTTP", raw("\x1b[2J" + strings.Repeat("no HTTP", 5000) + "\r\n\r\n"), "malformed HTTP"},
		{"it hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be reached: EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewTLSServer(c.answer)
			defer s.Close()
			p := newProvider(served(s), "")
			if p.client == nil {
				t.Fatal(p.answer)
			}
			defer p.client.CloseIdleConnections()
			got := asked(t, p)
			if (c.says == "") != (got.Problem == "") || !strings.Contains(got.Problem, c.says) || got.Denied != "" {
				t.Errorf("%+v, want %q", got, c.says)
			}
			if len(got.Problem) > 400 || strings.ContainsRune(got.Problem, '\x1b') {
				t.Errorf("%d bytes: %.1000q", len(got.Problem), got.Problem)
			}
			if again := asked(t, p); again != got {
				t.Errorf("first %+v, then %+v", got, again)
			}
			if elsewhere.Load() {
				t.Error("it went there, with the credentials")
			}
		})
	}
	t.Run("another certificate authority", func(t *testing.T) {
		s := httptest.NewTLSServer(http.NotFoundHandler())
		defer s.Close()
		p := newProvider([]byte(kubeconfig(s.URL)), "")
		if got := asked(t, p).Problem; !strings.Contains(got, "certificate") {
			t.Error(got)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		s := httptest.NewTLSServer(http.NotFoundHandler())
		kubeconfig := served(s)
		s.Close()
		p := newProvider(kubeconfig, "")
		first, again := asked(t, p).Problem, asked(t, p).Problem
		if first != "it cannot be reached: connection refused" || again != first {
			t.Errorf("%q, %q", first, again)
		}
	})
	if p := newProvider([]byte("users: [{user: {exec: {command: sh}}}]"), ""); p.client != nil || p.answer == nil || !strings.Contains(p.answer.Problem, "kubeconfig") {
		t.Errorf("a kubeconfig that cannot be used: %+v", p)
	}
}

// TestAskNamespace: an API server that lives may yet not let this cluster ask for resources.
func TestAskNamespace(t *testing.T) {
	for _, c := range []struct {
		name         string
		lives, lists int
		want         Answer
	}{
		{"it lets ask", 200, 200, Answer{}},
		{"it lets ask, and does not tell whether it lives", 403, 200, Answer{}},
		{"no RoleBinding", 200, 403, Answer{Reason: corev1beta1.ReasonIdentityDenied, Denied: "it denies access to its namespace theirs: its administrator must bind the user of the kubeconfig to ClusterRole liqo-remote-controlplane there, or the namespace is another one"}},
		{"no such kind", 200, 404, Answer{Reason: corev1beta1.ReasonIdentityNotReady, Denied: "it does not know ResourceSlices: its administrator must enable authentication there"}},
		{"it does not live", 500, 403, Answer{Problem: "it answers /livez with status 500"}},
		{"it is overloaded", 200, 429, Answer{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &provider{namespace: "theirs", url: "https://milan/", client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				status := http.StatusTeapot
				switch r.URL.RequestURI() {
				case "/livez":
					status = c.lives
				case "/apis/authentication.liqo.io/v1beta1/namespaces/theirs/resourceslices?limit=1":
					status = c.lists
				default:
					t.Errorf("asked for %s", r.URL)
				}
				return &http.Response{StatusCode: status, Body: http.NoBody}, nil
			})}}
			if got := p.ask(t.Context()); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestAsker has one API server fall silent and another one that is well: each change is told once, and by the time that
// one of them takes the other is not held up.
func TestAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := atomic.Bool{}
		a := newAsker()
		answering := roundTripper(func(*http.Request) (*http.Response, error) {
			status := http.StatusServiceUnavailable
			if well.Load() {
				status = http.StatusOK
			}
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		})
		a.providers["milan"] = &provider{kubeconfig: []byte("a"), url: "https://milan", client: &http.Client{Transport: answering}}
		a.providers["naples"] = &provider{kubeconfig: []byte("b"), url: "https://naples", client: &http.Client{Transport: silent{}}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Start(ctx) }()
		next := func() string { e := <-a.changed; return e.Object.Name }

		begin := time.Now()
		if got := []string{next(), next()}; !slices.Contains(got, "milan") || !slices.Contains(got, "naples") {
			t.Errorf("told of %v", got)
		}
		if took := time.Since(begin); took != interval+askTimeout {
			t.Errorf("it took %v", took)
		}
		if got := a.answerOf("milan", []byte("a"), ""); got == nil || !strings.Contains(got.Problem, "503") {
			t.Errorf("%+v", got)
		}
		if got := a.answerOf("naples", []byte("b"), ""); got == nil || got.Problem != "it does not answer in time" {
			t.Errorf("%+v", got)
		}
		well.Store(true)
		if got := next(); got != "milan" {
			t.Errorf("told of %s", got)
		}
		if got := a.answerOf("milan", []byte("a"), ""); got == nil || got.Problem != "" {
			t.Errorf("%+v", got)
		}
		if got := a.answerOf("naples", nil, ""); got != nil || a.providers["naples"] != nil {
			t.Errorf("asked without an identity: %+v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
