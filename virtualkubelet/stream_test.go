package virtualkubelet

import (
	"net/http"
	"net/url"
	"testing"
)

// What a kubelet is asked becomes what an API server is asked, and nothing else goes on.
func TestStreamURL(t *testing.T) {
	base, err := url.Parse("https://milan.example:6443/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	to := target{node: "milan", namespace: "shop-rome", pod: "web", session: &session{base: base}}
	for _, c := range []struct {
		kind             stream
		container, query string
		want             string
	}{
		{logs, "web", "follow=true&tailLines=10&insecureSkipTLSVerifyBackend=true", "log?container=web&follow=true&tailLines=10"},
		{exec, "web", "command=sh&command=-c&command=ls+%2F&input=1&output=1&error=0&tty=1&container=other", "exec?command=sh&command=-c&command=ls+%2F&container=web&stderr=false&stdin=true&stdout=true&tty=true"},
		{attach, "web", "output=true", "attach?container=web&stdout=true"},
		{portForward, "", "port=8080", "portforward?ports=8080"},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := c.kind.url(to, c.container, query).String(), "https://milan.example:6443/prefix/api/v1/namespaces/shop-rome/pods/web/"+c.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Whoever asks has no name at the provider but that of the slice.
func TestStreamHeaders(t *testing.T) {
	in := http.Header{}
	for _, name := range []string{"Authorization", "Impersonate-User", "Impersonate-Group", "X-Remote-User", "Cookie", "X-Forwarded-For"} {
		in.Set(name, "x")
	}
	in.Set("Upgrade", "SPDY/3.1")
	in.Add("X-Stream-Protocol-Version", "v5.channel.k8s.io")
	in.Add("X-Stream-Protocol-Version", "v4.channel.k8s.io")
	out := streamHeaders(in)
	if len(out) != 2 || len(out["X-Stream-Protocol-Version"]) != 2 {
		t.Errorf("goes on: %v", out)
	}
}
