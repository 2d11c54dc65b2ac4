package cidr_test

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.242.0.0/15": "10.242.0.0/15 <nil>",
		"fd00:1::/32":   "fd00:1::/32 <nil>",
		"10.243.0.0/15": "invalid Prefix 10.243.0.0/15 has host bits: use 10.242.0.0/15",
		"fd00:1::1/32":  "invalid Prefix fd00:1::1/32 has host bits: use fd00:1::/32",
		"10.243.0.0":    `invalid Prefix "10.243.0.0" is not a CIDR, such as 10.243.0.0/16`,
		"10.243.0.0/33": `invalid Prefix "10.243.0.0/33" is not a CIDR, such as 10.243.0.0/16`,
		"":              `invalid Prefix "" is not a CIDR, such as 10.243.0.0/16`,
	} {
		p, err := cidr.Parse(text)
		if got := fmt.Sprint(p, " ", err); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
