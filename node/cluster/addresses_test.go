package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/node/fabric"
)

func TestServerAddresses(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a port", `{"kind": "APIVersions", "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "192.168.9.2:6443"}]}`, 200, "[{192.168.9.2/32 the API server}]"},
		{"IPv6, without a port, mapped", `{"serverAddressByClientCIDRs": [{"serverAddress": "[fd00::2]:6443"}, {"serverAddress": "fd00::1"}, {"serverAddress": "::ffff:10.0.0.1"}]}`, 200,
			"[{10.0.0.1/32 the API server} {fd00::1/128 the API server} {fd00::2/128 the API server}]"},
		{"a name", `{"serverAddressByClientCIDRs": [{"serverAddress": "ip-10-0-0-1.internal:443"}]}`, 200, "[]"},
		{"nothing", `{}`, 200, "[]"},
		{"not for us", `{}`, 403, "[]"},
		{"something else", `<html>`, 200, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api" {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}))
			defer s.Close()
			l, err := New(&rest.Config{Host: s.URL}, Options{NodeName: "worker"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Disconnect()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			l.addresses.follow(ctx, l.networking, cancel)
			if got := fmt.Sprint(l.Reserved()); got != tt.want || !l.addresses.known() {
				t.Errorf("%s, want %s", got, tt.want)
			}
			var _ fabric.Reserver = l
			if l.addresses.add(nil) {
				t.Error("the same again is news")
			}
		})
	}
}
