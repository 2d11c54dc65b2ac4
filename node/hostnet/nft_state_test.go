package hostnet

import (
	"encoding/json"
	"net/netip"
	"testing"
)

// What one program writes another one reads: the status command asks the agent.
func TestTranslationElementText(t *testing.T) {
	addr := netip.MustParseAddr
	for text, e := range map[string]TranslationElement{
		`"10.0.0.1"`:              {First: addr("10.0.0.1"), Last: addr("10.0.0.1")},
		`"10.5.0.0/16"`:           {First: addr("10.5.0.0"), Last: addr("10.5.255.255")},
		`"fd00::/64"`:             {First: addr("fd00::"), Last: addr("fd00::ffff:ffff:ffff:ffff")},
		`"10.0.0.1-10.0.0.7"`:     {First: addr("10.0.0.1"), Last: addr("10.0.0.7")},
		`"192.0.2.1 : 10.0.0.9"`:  {First: addr("192.0.2.1"), Last: addr("192.0.2.1"), Value: addr("10.0.0.9")},
		`"fd00::1 : fd00::2"`:     {First: addr("fd00::1"), Last: addr("fd00::1"), Value: addr("fd00::2")},
		`"10.5.0.0/16 : fd00::2"`: {First: addr("10.5.0.0"), Last: addr("10.5.255.255"), Value: addr("fd00::2")},
	} {
		if b, err := json.Marshal(e); err != nil || string(b) != text {
			t.Errorf("%s is written as %s, %v", text, b, err)
		}
		got := TranslationElement{First: addr("::1")}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != e {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{``, `x`, `1.2.3.4/33`, `1.2.3.4-`, `1.2.3.4 : `, `-`} {
		if err := new(TranslationElement).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
