package main

import (
	"fmt"
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
		"b 10.71.2.20":          `"b" is not a pod: write NAMESPACE/POD`,
		"a/b/c 10.71.2.20":      `"a/b/c" is not a pod: write NAMESPACE/POD`,
		"a/ 10.71.2.20":         `"a/" is not a pod: write NAMESPACE/POD`,
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
