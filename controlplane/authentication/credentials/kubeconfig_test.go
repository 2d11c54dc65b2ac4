package credentials

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func access(t testing.TB) Access {
	t.Helper()
	k := generate(t)
	now := time.Now()
	return Access{
		Cluster: "milan", User: "controlplane-milan", Server: "https://198.51.100.7:6443", CA: []byte("a certificate"),
		Certificate: certificate(t, k, ControlPlaneSubject("rome"), now, now.Add(time.Hour)), Key: k, Namespace: "liqo-tenant-rome",
	}
}

func TestKubeconfigRoundTrip(t *testing.T) {
	a := access(t)
	a.Proxy = "http://10.70.0.5:8118"
	text, err := WriteKubeconfig(a)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadKubeconfig(text)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := c.Proxy(nil)
	if err != nil || proxy.String() != a.Proxy {
		t.Errorf("proxy %v, %v", proxy, err)
	}
	if c.Host != a.Server || string(c.CAData) != string(a.CA) || string(c.CertData) != string(a.Certificate) || len(c.KeyData) == 0 {
		t.Errorf("got %v", c)
	}
	if c.ExecProvider != nil || c.AuthProvider != nil || c.Insecure {
		t.Errorf("got %v", c)
	}
}

// TestAPIServerOfAnother: a provider tells where its API server is. What it tells must not become a file that sends our
// credentials elsewhere than by TLS.
func TestAPIServerOfAnother(t *testing.T) {
	for _, server := range []string{"", "http://198.51.100.7", "file:///etc/passwd", "https://", "198.51.100.7:6443", "https://user:password@host", "https://host/?x=y"} {
		a := access(t)
		a.Server = server
		if _, err := WriteKubeconfig(a); err == nil {
			t.Errorf("%q is accepted", server)
		}
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://198.51.100.7:6443", certificate-authority-data: eA==}}]
users: [{name: u, user: {token: secret}}]
`

func TestReadKubeconfig(t *testing.T) {
	for _, c := range []struct{ name, from, to, refused string }{
		{"a token", "", "", ""},
		{"a program", "{token: secret}", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}}", "program"},
		{"an auth provider", "{token: secret}", "{auth-provider: {name: oidc}}", "auth-provider"},
		{"a token file", "{token: secret}", "{tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}", "file"},
		{"a certificate file", "{token: secret}", "{client-certificate: /etc/passwd, client-key: /etc/shadow}", "file"},
		{"a CA file", "certificate-authority-data: eA==", "certificate-authority: /etc/passwd", "file"},
		{"no TLS", "https://", "http://", "https"},
		{"no check of the server", "certificate-authority-data: eA==", "insecure-skip-tls-verify: true", "insecure"},
		{"another user", "{token: secret}", "{token: secret, as: admin}", "impersonates"},
		{"another group", "{token: secret}", "{token: secret, as-groups: [system:masters]}", "impersonates"},
		{"no credentials", "{token: secret}", "{}", "no credentials"},
		{"half a certificate", "{token: secret}", "{client-certificate-data: eA==}", "only one"},
		{"a proxy that is a file", "certificate-authority-data: eA==", `proxy-url: "file:///etc/passwd"`, "proxy-url"},
		{"no such context", "current-context: c", "current-context: d", "current-context"},
		{"no such user", "user: u}", "user: v}", "user"},
		{"no such cluster", "cluster: k,", "cluster: l,", "cluster"},
		{"no YAML", "contexts: [", "contexts: [[", "parse"},
		{"too long", "token: secret", "token: " + strings.Repeat("x", maxKubeconfig), "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(kubeconfig, c.from, c.to, 1)
			if c.from != "" && text == kubeconfig {
				t.Fatal("nothing was replaced")
			}
			switch _, err := ReadKubeconfig([]byte(text)); {
			case err == nil && c.refused != "":
				t.Error("accepted")
			case err != nil && (c.refused == "" || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("refused: %v; want %q", err, c.refused)
			}
		})
	}
}

func FuzzReadKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfig))
	f.Add([]byte(strings.Replace(kubeconfig, "{token: secret}", "{exec: {command: x}}", 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ReadKubeconfig(text)
		if err != nil {
			return
		}
		if reachesBeyond(c) {
			t.Errorf("accepted: %q", text)
		}
	})
}

// reachesBeyond tells whether a configuration makes its client do more than speak TLS to the host.
func reachesBeyond(c *rest.Config) bool {
	return c.ExecProvider != nil || c.AuthProvider != nil || c.BearerTokenFile != "" || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" ||
		c.Insecure || c.Impersonate.UserName != "" || !strings.HasPrefix(c.Host, "https://")
}
