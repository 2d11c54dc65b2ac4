package page

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
)

func rome(s *Server) {
	s.watch.read = func(context.Context, *access.Cluster, *survey.Cluster, bool) (*survey.Cluster, error) {
		return clusterWith("rome", 2, 1, "milan"), nil
	}
}

// do sends a request to a server, and returns the status and the body.
func do(t *testing.T, s *Server, method, path string, header map[string]string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.listener.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r) // redirects are answers, too
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(body)
}

// TestWhoIsAnswered: only the page itself. Rebound names, pages of others and users
// without the token are refused.
func TestWhoIsAnswered(t *testing.T) {
	s := start(t, []string{"rome"}, rome)
	host := s.listener.Addr().String()
	_, port, _ := strings.Cut(host, ":")
	token := "Bearer " + s.guard.token
	for _, tt := range []struct {
		name, method, path string
		header             map[string]string
		want               int
	}{
		{"the page", "GET", "/", nil, 200},
		{"its script", "GET", "/main.js", nil, 200},
		{"the page by name", "GET", "/", map[string]string{"Host": "localhost:" + port}, 200},
		{"a link from elsewhere opens the page", "GET", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200},
		{"the API", "GET", "/api/state", map[string]string{"Authorization": token}, 200},
		{"the API, of the page", "GET", "/api/state", map[string]string{"Authorization": token, "Sec-Fetch-Site": "same-origin"}, 200},
		{"another user of the machine", "GET", "/api/state", nil, 401},
		{"a guess", "GET", "/api/state", map[string]string{"Authorization": "Bearer AAAAAAAAAAAAAAAAAAAAAAAAAA"}, 401},
		{"part of the token", "GET", "/api/state", map[string]string{"Authorization": token[:len(token)-1]}, 401},
		{"no scheme", "GET", "/api/state", map[string]string{"Authorization": s.guard.token}, 401},
		{"the token in the query", "GET", "/api/state?token=" + s.guard.token, nil, 401},
		{"the token in a cookie", "GET", "/api/state", map[string]string{"Cookie": "token=" + s.guard.token}, 401},
		{"what does not exist, without a token", "GET", "/api/nothing", nil, 401},
		{"what does not exist", "GET", "/api/nothing", map[string]string{"Authorization": token}, 404},
		{"a path that is no API only at first sight", "GET", "//api/state", nil, 404},
		{"a rebound name", "GET", "/", map[string]string{"Host": "evil.example:" + port}, 403},
		{"a rebound name with the token", "GET", "/api/state", map[string]string{"Host": "evil.example", "Authorization": token}, 403},
		{"another port", "GET", "/", map[string]string{"Host": "127.0.0.1:1"}, 403},
		{"another address of loopback", "GET", "/", map[string]string{"Host": "127.0.0.2:" + port}, 403},
		{"a page of others", "GET", "/api/state", map[string]string{"Authorization": token, "Origin": "https://evil.example"}, 403},
		{"a file on disk", "GET", "/api/state", map[string]string{"Authorization": token, "Origin": "null"}, 403},
		{"another port's page", "GET", "/api/state", map[string]string{"Authorization": token, "Origin": "http://127.0.0.1:1"}, 403},
		{"an image of a page of others", "GET", "/icon.svg", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"a link into the API", "GET", "/api/state", map[string]string{"Authorization": token, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403},
		{"a page of another port", "GET", "/api/state", map[string]string{"Authorization": token, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403},
		{"a form of others", "POST", "/api/doctor?cluster=0", map[string]string{"Origin": "https://evil.example"}, 403},
		{"work without an Origin", "POST", "/api/doctor?cluster=0", map[string]string{"Authorization": token}, 403},
		{"work without the token", "POST", "/api/doctor?cluster=0", map[string]string{"Origin": "http://" + host}, 401},
		{"a preflight", "OPTIONS", "/api/state", map[string]string{"Origin": "https://evil.example", "Access-Control-Request-Headers": "authorization"}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, header, body := do(t, s, tt.method, tt.path, tt.header)
			if code != tt.want {
				t.Errorf("status %d, want %d: %s", code, tt.want, body)
			}
			if header.Get("Content-Security-Policy") != policy || header.Get("X-Content-Type-Options") != "nosniff" || code == 200 && header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers: %v", header)
			}
			for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin"} {
				if header.Get(name) != "" {
					t.Errorf("%s: %s", name, header.Get(name))
				}
			}
			if strings.Contains(body, s.guard.token) {
				t.Error("the answer holds the token")
			}
		})
	}
}

// TestListensOnLoopbackOnly: nobody else's machine reaches the page.
func TestListensOnLoopbackOnly(t *testing.T) {
	s := start(t, []string{"rome"}, rome)
	if got := s.listener.Addr().String(); !strings.HasPrefix(got, "127.0.0.1:") {
		t.Errorf("it listens on %s", got)
	}
	if a, b := newToken(), newToken(); a == b || len(a) < 26 {
		t.Errorf("tokens %q, %q", a, b)
	}
	if _, hash, _ := strings.Cut(s.URL(), "/#"); hash != s.guard.token {
		t.Errorf("URL %s", s.URL())
	}
}

// TestHungClusterBlocksNobody: requests about a cluster that does not answer leave room for those about another one.
func TestHungClusterBlocksNobody(t *testing.T) {
	s := start(t, []string{"rome", "milan"}, new(stand).serve)
	s.dropped = func(ctx context.Context, c *access.Cluster, _ types.NamespacedName) ([]drops.Drop, error) {
		if c == s.config.Clusters[0] {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	}
	ask := func(ctx context.Context, path string) (code int) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.listener.Addr().String()+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Authorization", "Bearer "+s.guard.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for until := time.Now().Add(time.Minute); strings.Count(stateText(t, s), `"readAt"`) < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the clusters are not read")
		}
	}
	held, cancel := context.WithCancel(t.Context())
	var hung sync.WaitGroup
	for range 2 {
		hung.Go(func() { ask(held, "/api/drops?cluster=0&peer=milan") })
	}
	defer hung.Wait()
	defer cancel()
	for until := time.Now().Add(time.Minute); len(s.reads) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("nobody asks")
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if code := ask(ctx, "/api/drops?cluster=1&peer=rome"); code != http.StatusOK {
		t.Errorf("about the other cluster: status %d", code)
	}
}

func stateText(t *testing.T, s *Server) string {
	t.Helper()
	_, _, text := do(t, s, "GET", "/api/state", map[string]string{"Authorization": "Bearer " + s.guard.token})
	return text
}

// TestRequestsAreBounded: what no page sends is refused.
func TestRequestsAreBounded(t *testing.T) {
	s := start(t, []string{"rome"}, rome)
	code, _, _ := do(t, s, "GET", "/api/state?x="+strings.Repeat("x", 64<<10), map[string]string{"Authorization": "Bearer " + s.guard.token})
	if code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long query: status %d", code)
	}
}
