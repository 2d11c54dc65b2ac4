package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
)

// policy lets a page load what this server serves, ask this server, and nothing else.
// With Trusted Types no text can become markup, whatever a script does.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard decides who is answered. Loopback is shared by everybody on the machine, and
// by every page open in a browser on it:
//
//   - a foreign name that resolves to loopback (DNS rebinding) comes with another Host;
//   - a foreign page comes with another Origin, or Sec-Fetch-Site, and cannot set
//     Authorization;
//   - another user of the machine does not know the token.
//
// The files of the page are open to everybody: they are part of the program and contain
// nothing from a cluster. There is no cookie, because a cookie would be sent to every port
// of the host.
type guard struct {
	hosts []string // what Host may be: "127.0.0.1:4711"
	token string
	// seen is called with each request that has the token.
	seen func()
}

// newToken returns 26 characters that nobody can guess.
func newToken() string { return rand.Text() }

// maxBody bounds the body of a request. No request needs one.
const maxBody = 4 << 10

func (g *guard) protect(files, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if refusal := g.stranger(r); refusal != "" {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if !strings.HasPrefix(r.URL.Path, "/api/") {
			files.ServeHTTP(w, r)
			return
		}
		if !g.knows(r) {
			http.Error(w, "the token is missing or wrong: open the address that 'liqoctl console' printed", http.StatusUnauthorized)
			return
		}
		g.seen()
		api.ServeHTTP(w, r)
	})
}

// stranger says why a request is not one of the page; empty: it may be.
func (g *guard) stranger(r *http.Request) string {
	if !slices.Contains(g.hosts, r.Host) {
		return "this page is served only at 127.0.0.1 or localhost, not under another host name"
	}
	// Browsers send an Origin with every request except a plain GET of the same origin.
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host || origin == "" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "requests from other pages are refused"
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
	case "none", "cross-site", "same-site":
		// A user who opens the address, or follows a link to it, to load the page.
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.URL.Path != "/" {
			return "requests from other pages are refused"
		}
	default:
		return "requests from other pages are refused"
	}
	return ""
}

// knows tells whether a request has the token.
func (g *guard) knows(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	// Hashes have the same length, so the time of the comparison reveals nothing.
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.token))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
