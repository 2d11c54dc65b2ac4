package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

// Keys of nobody.
var (
	privateRaw = []byte("\x18private-key-of-nobody-32-bytes\x40")
	publicRaw  = []byte("\x19public-key-of-nobody--32-bytes\x41")
	privateKey = base64.StdEncoding.EncodeToString(privateRaw)
	publicKey  = base64.StdEncoding.EncodeToString(publicRaw)
	pemText    = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBase64TextOfNobodysKey\nAAAAAA==\n-----END EC PRIVATE KEY-----"
	jwtText    = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJlLW9mLW5vYm9keQ"
	digest     = strings.Repeat("0a1b2c3d", 8)
)

func TestScrub(t *testing.T) {
	s := newScrubber([]string{publicKey}, [][]byte{[]byte("correct horse battery staple\n"), []byte("short")})
	for _, tt := range []struct{ name, in, want string }{
		{"nothing secret", "peer 10.71.0.3 answers in 3ms", "peer 10.71.0.3 answers in 3ms"},
		{"a private key of WireGuard", "key " + privateKey + ", peer " + publicKey, "key " + left + ", peer " + publicKey},
		{"the same in hexadecimal", "private_key=" + hex.EncodeToString(privateRaw) + "\npublic_key=" + hex.EncodeToString(publicRaw), "private_key=" + left + "\npublic_key=" + hex.EncodeToString(publicRaw)},
		{"digests", "image@sha256:" + digest + " containerd://" + digest, "image@sha256:" + digest + " containerd://" + digest},
		{"a token", "token " + jwtText + " expired", "token " + left + " expired"},
		{"a header", "Authorization: Bearer abc.def-123456 refused", "Authorization: Bearer " + left + " refused"},
		{"credentials in an URL", "GET https://me:s3cr3t@example.com/x", "GET https://me:" + left + "@example.com/x"},
		{"a PEM block", "a\n" + pemText + "\nb", "a\n" + left + "\nb"},
		{"a PEM block on one line", `{"key":"` + strings.ReplaceAll(pemText, "\n", `\n`) + `"}`, `{"key":"` + left + `"}`},
		{"a PEM block without its beginning", "AAAA==\n-----END EC PRIVATE KEY-----\nb", left + "\nb"},
		{"a named value", `level=info password=hunter2 user=me`, `level=info password=` + left + ` user=me`},
		{"a named value in JSON", `{"apiKey":"hunter2","n":1}`, `{"apiKey":"` + left + `","n":1}`},
		{"a named value in YAML", "clientSecret: hunter2\nx: y", "clientSecret: " + left + "\nx: y"},
		{"a named value in JSON in a string", `"{\"token\":\"hunter2\"}"`, `"{\"token\":\"` + left + `\"}"`},
		{"names of Secrets", "secretName: gw-milan\nsecretRef: {name: x}\nautomountServiceAccountToken: false\ntokenExpirationSeconds: 3600",
			"secretName: gw-milan\nsecretRef: {name: x}\nautomountServiceAccountToken: false\ntokenExpirationSeconds: 3600"},
		{"the reason of a condition", `reason: SecretNotFound, message: "there is no Secret gw-x"`, `reason: SecretNotFound, message: "there is no Secret gw-x"`},
		{"a known secret", "pass correct horse battery staple on", "pass " + left + " on"},
		{"a known secret in base64", base64.StdEncoding.EncodeToString([]byte("correct horse battery staple\n")), left},
		{"a word that is a secret somewhere", "short", "short"},
		{"a token of a well-known maker", "cloned with ghp_0123456789abcdefABCD", "cloned with " + left},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(s.text([]byte(tt.in))); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func FuzzScrub(f *testing.F) {
	for _, s := range []string{"", privateKey, pemText, jwtText, "password=x", "token: '", `"secret":"\"`, "-----BEGIN PRIVATE KEY-----"} {
		f.Add("before "+s+" after", []byte("a known secret"))
	}
	f.Fuzz(func(t *testing.T, text string, secret []byte) {
		s := newScrubber([]string{publicKey}, [][]byte{secret})
		got := s.text([]byte(text + " " + privateKey + "\n" + string(secret)))
		if bytes.Contains(got, []byte(privateKey)) {
			t.Errorf("the private key is still in %q", got)
		}
		if v := bytes.TrimSpace(secret); len(v) >= minSecret && bytes.Contains(got, v) && !strings.Contains(left, string(v)) {
			t.Errorf("the secret %q is still in %q", v, got)
		}
	})
}
