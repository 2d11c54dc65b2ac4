package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeconfigFor writes a kubeconfig for an address.
func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: old}}]
contexts: [{name: rome, context: {cluster: c, user: u}}]
current-context: rome
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// silent is the address of a server that accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// TestReach: a cluster that cannot be worked with is told before anything is
// asked of it, and what to do.
func TestReach(t *testing.T) {
	status := func(code int, reason metav1.StatusReason) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no","code":%d}`, reason, code)
		}
	}
	expired := httptest.NewServer(status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized))
	defer expired.Close()
	foreign := httptest.NewTLSServer(status(http.StatusOK, ""))
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer foreign.Close()
	html := func(code int) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			fmt.Fprint(w, "<html>Welcome</html>")
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	mute := silent(t)
	for _, tt := range []struct {
		name, server string
		flags        []string
		want         []string
	}{
		{"the token has expired", expired.URL, nil, []string{"does not accept the credentials of kubeconfig ", ", context rome: log in again, or choose others with --kubeconfig or --context"}},
		{"another cluster's certificate", foreign.URL, nil, []string{"shows a certificate that kubeconfig ", "does not trust: get a kubeconfig of this cluster"}},
		{"no such host", "https://no-such-host.invalid:6443", nil, []string{"name no-such-host.invalid cannot be resolved: check --kubeconfig"}},
		{"a web server that knows no such page", html(http.StatusNotFound), nil, []string{" is not a Kubernetes API server, or is older than 1.28: check --kubeconfig"}},
		{"a web server that welcomes everybody", html(http.StatusOK), nil, []string{" is not a Kubernetes API server, or is older than 1.28: check --kubeconfig"}},
		{"a web server that takes no POST", html(http.StatusMethodNotAllowed), nil, []string{" is not a Kubernetes API server, or is older than 1.28: check --kubeconfig"}},
		{"a proxy whose server is away", html(http.StatusBadGateway), nil, []string{"reach the cluster: "}},
		{"silence", mute, []string{"--request-timeout=1s"}, []string{"the API server " + mute + " does not answer: check that the cluster runs, that no firewall or VPN is in the way"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := liqoctl(t.Context(), append([]string{"--kubeconfig", kubeconfigFor(t, tt.server), "generate", "configuration"}, tt.flags...)...)
			if got.code != 1 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("got %+v", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("%q is not in %q", want, got.stderr)
				}
			}
		})
	}
}

// TestUnpeerOfWhatIsGone: there is another command for a remote cluster that does not answer, and for no other.
func TestUnpeerOfWhatIsGone(t *testing.T) {
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`)
	}))
	defer answers.Close()
	const away = "http://127.0.0.1:1"
	for _, tt := range []struct {
		name, local, remote string
		want                bool
	}{{"the remote cluster", answers.URL, away, true}, {"the local one", away, answers.URL, false}, {"both", away, away, false}} {
		got := liqoctl(t.Context(), "unpeer", "--kubeconfig", kubeconfigFor(t, tt.local), "--remote-kubeconfig", kubeconfigFor(t, tt.remote))
		if got.code != 1 || !strings.Contains(got.stderr, "cannot be reached") || strings.Contains(got.stderr, "'liqoctl force unpeer ID'") != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestReachBoth: both clusters are asked, and each is told by its name.
func TestReachBoth(t *testing.T) {
	a := newApp("liqoctl", nil, io.Discard, io.Discard)
	*a.local.kube.KubeConfig = kubeconfigFor(t, "http://127.0.0.1:1")
	remoteKubeconfig(t, a, kubeconfigFor(t, "http://127.0.0.1:2"))
	_, _, err := a.two(t.Context())
	if err == nil || !strings.Contains(err.Error(), "(local) reach the cluster: the API server http://127.0.0.1:1") ||
		!strings.Contains(err.Error(), "\n(remote) reach the cluster: the API server http://127.0.0.1:2") || !strings.Contains(err.Error(), "--remote-kubeconfig is right") {
		t.Errorf("got %v", err)
	}
	a = newApp("liqoctl", nil, io.Discard, io.Discard)
	*a.local.kube.KubeConfig = kubeconfigFor(t, "http://127.0.0.1:1")
	remoteKubeconfig(t, a, "/nope")
	const want = "(remote) kubeconfig /nope cannot be read: stat /nope: no such file or directory; name another with --remote-kubeconfig"
	if _, _, err := a.two(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func remoteKubeconfig(t *testing.T, a *app, file string) {
	t.Helper()
	if err := a.remote.flags.Set("remote-kubeconfig", file); err != nil {
		t.Fatal(err)
	}
}

// TestWarnings: what an API server remarks is shown once.
func TestWarnings(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "this version is deprecated"`)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"CLUSTER_ID":"rome"}}`)
	}))
	defer server.Close()
	got := liqoctl(t.Context(), "--kubeconfig", kubeconfigFor(t, server.URL), "generate", "configuration")
	if n := strings.Count(got.stderr, " WARN   this version is deprecated\n"); n != 1 {
		t.Errorf("shown %d times: %q", n, got.stderr)
	}
}

// TestVerboseShowsRequests, and nothing of libraries is shown otherwise.
func TestVerboseShowsRequests(t *testing.T) {
	kubeconfig := kubeconfigFor(t, "http://127.0.0.1:1")
	if got := liqoctl(t.Context(), "--kubeconfig", kubeconfig, "version", "-v=6"); !strings.Contains(got.stderr, "selfsubjectreviews") {
		t.Errorf("-v=6: %q", got.stderr)
	}
	if got := liqoctl(t.Context(), "--kubeconfig", kubeconfig, "version", "-v"); strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("-v: %q", got.stderr)
	}
}

// TestInterrupt: Ctrl-C ends what waits, with a word.
func TestInterrupt(t *testing.T) {
	mute := silent(t)
	cmd := exec.CommandContext(t.Context(), testProgram(t), "--kubeconfig", kubeconfigFor(t, mute), "generate", "configuration", "-v=6")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := stderr.Read(one); err != nil { // it has begun
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(stderr)
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if !strings.Contains(string(said), " ERRO   reach the cluster: interrupted") || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v: %s", err, said)
	}
}
