package access

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// expiry is what credentials say of their own end.
type expiry struct {
	what string // "client certificate"
	at   time.Time
}

// expired says which of the credentials are out of date, and since when; empty:
// none, or nobody but the API server can tell. Those that a program fetches are
// renewed by it.
func expired(config *rest.Config, now time.Time) string {
	if config == nil {
		return ""
	}
	for _, read := range []func(*rest.Config) (expiry, bool){certificateExpiry, tokenExpiry} {
		if e, ok := read(config); ok && !now.Before(e.at) {
			return fmt.Sprintf("its %s is valid until %s only, and it is %s", e.what, e.at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// certificateExpiry reads the client certificate, the first of its chain.
func certificateExpiry(config *rest.Config) (e expiry, ok bool) {
	text := config.CertData
	if len(text) == 0 && config.CertFile != "" {
		text, _ = os.ReadFile(config.CertFile) // what cannot be read tells nothing
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return e, false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return e, false
	}
	return expiry{"client certificate", c.NotAfter}, true
}

// tokenExpiry reads what a token says of itself, if it is a JSON Web Token (RFC
// 7519 section 4.1.4). Its signature is for the API server to check.
func tokenExpiry(config *rest.Config) (e expiry, ok bool) {
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		text, _ := os.ReadFile(config.BearerTokenFile) // what cannot be read tells nothing
		token = strings.TrimSpace(string(text))
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return e, false
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(body, &claims) != nil || claims.Expires == 0 {
		return e, false
	}
	return expiry{"token", time.Unix(int64(claims.Expires), 0)}, true
}
