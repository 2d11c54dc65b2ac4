package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestTraceOptions(t *testing.T) {
	for args, want := range map[string]string{
		"a/b 10.71.2.20":        "a/b 10.71.2.20 0",
		"a/b 10.71.2.20:443":    "a/b 10.71.2.20 443",
		"a/b ::ffff:10.71.2.20": "a/b 10.71.2.20 0",
		"a/b fd00::1":           "a/b fd00::1 0",
		"a/b [fd00::1]":         "a/b fd00::1 0",
		"a/b [fd00::1]:443":     "a/b fd00::1 443",
		"b 10.71.2.20":          `"b" is not a pod: write NAMESPACE/POD, or POD with its namespace as -n`,
		"a/b/c 10.71.2.20":      `"a/b/c" is not a pod: write NAMESPACE/POD, or POD with its namespace as -n`,
		"a/ 10.71.2.20":         `"a/" is not a pod: write NAMESPACE/POD, or POD with its namespace as -n`,
		"a/b web.milan":         `"web.milan" is not an address: write ADDRESS or ADDRESS:PORT, such as 10.71.2.20:443 or [fd00:71::20]:443; names are not looked up`,
		"a/b 10.71.2.20:70000":  `"10.71.2.20:70000" is not an address: write ADDRESS or ADDRESS:PORT, such as 10.71.2.20:443 or [fd00:71::20]:443; names are not looked up`,
		"a/b fe80::1%eth0":      `"fe80::1%eth0" is a link-local address, which is valid on one link only`,
	} {
		pod, to, _ := strings.Cut(args, " ")
		o, err := traceOptions(pod, to)
		got := strings.Join([]string{o.From.String(), o.To.String(), fmt.Sprint(o.Port)}, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// TestPodNamed: -n gives the namespace of a pod that is named without one.
func TestPodNamed(t *testing.T) {
	for _, tt := range []struct{ namespace, pod, want string }{
		{"shop", "web", "shop/web"}, {"shop", "other/web", "other/web"}, {"", "web", "web"}, {"", "other/web", "other/web"},
	} {
		a := newApp("liqoctl", strings.NewReader(""), io.Discard, io.Discard)
		*a.local.kube.Namespace = tt.namespace
		if got := a.podNamed(tt.pod); got != tt.want {
			t.Errorf("-n %q, %s: %s, want %s", tt.namespace, tt.pod, got, tt.want)
		}
	}
	got := liqoctl(t.Context(), "network", "trace", "x")
	got.want(t, "one argument", "", " ERRO   expected [NAMESPACE/]POD and ADDRESS[:PORT], got 1 argument; see 'liqoctl network trace --help'\n")
}
