package credentials

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestTransport: of a header without end a little is read, by either version of HTTP.
func TestTransport(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, c := range []struct {
			name string
			size int
			ok   bool
		}{{"a header as usual", 1 << 10, true}, {"a header without end", 1 << 20, false}} {
			t.Run(fmt.Sprintf("HTTP %d, %s", version, c.name), func(t *testing.T) {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != version || r.Header.Get("Authorization") != "Bearer secret" {
						w.WriteHeader(http.StatusTeapot)
					}
					for i := range c.size >> 10 {
						w.Header().Add("Warning", fmt.Sprintf(`299 - "%d %s"`, i, strings.Repeat("x", 1<<10)))
					}
				}))
				s.EnableHTTP2 = version == 2
				s.StartTLS()
				t.Cleanup(s.Close)
				transport, err := Transport(&rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
				if err != nil {
					t.Fatal(err)
				}
				client := http.Client{Transport: transport}
				defer client.CloseIdleConnections()
				response, err := client.Get(s.URL)
				if err == nil {
					response.Body.Close()
				}
				if (err == nil) != c.ok || err == nil && response.StatusCode != http.StatusOK {
					t.Errorf("%v, %+v", err, response)
				}
			})
		}
	}
}
