package manifests

import "testing"

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"10.243.0.0/16":       "",
		"fd00:10::/64":        "",
		"10.243.0.1/16":       "has bits set behind its length: 10.243.0.0/16 is meant?",
		"10.243.0.0":          "is not a prefix such as 10.243.0.0/16 or fd00:10::/64",
		"::ffff:10.0.0.0/104": "is an IPv4-mapped IPv6 prefix: write it as IPv4",
		"0.0.0.0/0":           "cannot be routed between clusters",
		"127.0.0.0/8":         "cannot be routed between clusters",
		"224.0.0.0/4":         "cannot be routed between clusters",
		"fe80::/64":           "cannot be routed between clusters",
	} {
		if _, why := ParsePrefix(text); why != want {
			t.Errorf("%s: %q, want %q", text, why, want)
		}
	}
}

func TestParseAddr(t *testing.T) {
	for text, want := range map[string]string{
		"10.80.0.1":       "",
		"fd00::1":         "",
		"ten":             "is not an IP address",
		"fe80::1%eth0":    "must have no zone",
		"::ffff:10.0.0.1": "is an IPv4-mapped IPv6 address: write it as 10.0.0.1",
		"0.0.0.0":         "is not the address of a host",
		"ff02::1":         "is not the address of a host",
	} {
		if _, why := ParseAddr(text); why != want {
			t.Errorf("%s: %q, want %q", text, why, want)
		}
	}
}
