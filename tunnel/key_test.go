package tunnel

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// The key pairs of RFC 7748 section 6.1.
const (
	alicePrivate = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
	alicePublic  = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
	bobPublic    = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
)

func mustHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPublicOfPrivate(t *testing.T) {
	alice := PrivateKey(mustHex(t, alicePrivate))
	if got, want := alice.Public(), PublicKey(mustHex(t, alicePublic)); got != want {
		t.Errorf("Public() = %v, want %v", got, want)
	}
	if got := (PrivateKey{}).Public(); !got.IsZero() {
		t.Errorf("public key of no key = %v, want none", got)
	}
	if a, b := GeneratePrivateKey(), GeneratePrivateKey(); a == b || a.IsZero() {
		t.Error("generated keys are not random")
	}
}

func TestParsePublicKey(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(mustHex(t, alicePublic))
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, n)) }
	for _, tt := range []struct{ name, text, err string }{
		{"as wg prints it", good, ""},
		{"with a line end", " " + good + "\r\n", ""},
		{"missing", "", "empty"},
		{"only white space", " \n", "empty"},
		{"31 bytes", encode(31), "31 bytes instead of 32"},
		{"33 bytes", encode(33), "33 bytes instead of 32"},
		{"hexadecimal", alicePublic, "48 bytes instead of 32"},
		{"no padding", strings.TrimRight(good, "="), "not base64"},
		{"URL alphabet", strings.Repeat("-", 43) + "=", "not base64"},
		{"broken by a line end", good[:10] + "\n" + good[10:], "not base64"},
		{"bits behind the end", good[:42] + "p=", "not base64"},
		{"zero", encode(0) + base64.StdEncoding.EncodeToString(make([]byte, 32)), "zero"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			public, err := ParsePublicKey(tt.text)
			checkError(t, err, tt.err)
			if tt.err == "" && public != PublicKey(mustHex(t, alicePublic)) {
				t.Errorf("parsed to %v", public)
			}
			if tt.err != "" && len(tt.text) > 8 && strings.Contains(err.Error(), tt.text[:8]) {
				t.Errorf("the error quotes the key: %v", err)
			}
		})
	}
}

// checkError compares an error with a part of its text; "" wants none.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && err == nil:
		t.Errorf("no error, want %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestPrivateKeyIsNeverShown(t *testing.T) {
	k := GeneratePrivateKey()
	type holder struct{ Key PrivateKey }
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "key", k, "holder", holder{k}, "config", Config{PrivateKey: k})
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", k, "holder", holder{k}, "pointer", &k)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", k, &k, holder{k})
	}
	text, err := json.Marshal(holder{k})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, secret := range []string{
		base64.StdEncoding.EncodeToString(k[:])[:12], hex.EncodeToString(k[:6]), strings.ToUpper(hex.EncodeToString(k[:6])),
		strings.Trim(fmt.Sprint(k[:6]), "[]"),
	} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("output holds %q:\n%s", secret, out.String())
		}
	}
}

func TestPublicKeyText(t *testing.T) {
	for _, k := range []PublicKey{{}, PublicKey(mustHex(t, bobPublic))} {
		text, err := json.Marshal(map[string]PublicKey{"k": k})
		if err != nil {
			t.Fatal(err)
		}
		back := map[string]PublicKey{}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if back["k"] != k {
			t.Errorf("%s came back as %v", text, back["k"])
		}
	}
	var k PublicKey
	if err := k.UnmarshalText([]byte("x")); err == nil {
		t.Error("bad text is a key")
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("")
	f.Add(base64.StdEncoding.EncodeToString(mustHex(f, alicePublic)))
	f.Add(" " + base64.StdEncoding.EncodeToString(mustHex(f, bobPublic)) + "\n")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add(alicePublic)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParsePublicKey(text)
		if err != nil {
			if !k.IsZero() {
				t.Fatalf("error %v together with key %v", err, k)
			}
			return
		}
		// One key, one text.
		if got := k.String(); got != strings.TrimSpace(text) {
			t.Fatalf("%q came back as %q", text, got)
		}
	})
}
