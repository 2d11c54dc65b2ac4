package virtualkubelet

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// Tokens count for a while, and those that are remembered are few.
func TestReviews(t *testing.T) {
	r, now := newReviews(), time.Now()
	of := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte{byte(i)}) }
	for i := range maxReviewed + 10 {
		r.put(of(i), authenticationv1.UserInfo{Username: "reader"}, now)
	}
	if n := len(r.by); n != maxReviewed {
		t.Errorf("%d are remembered, want %d", n, maxReviewed)
	}
	if who, ok := r.get(of(0), now.Add(reviewedFor-1)); !ok || who.Username != "reader" {
		t.Errorf("a token that was reviewed: %v, %v", who, ok)
	}
	if _, ok := r.get(of(0), now.Add(reviewedFor)); ok {
		t.Error("a review counts for ever")
	}
	later := now.Add(reviewedFor)
	r.put(of(200), authenticationv1.UserInfo{}, later)
	if _, ok := r.get(of(200), later); !ok {
		t.Error("those that are over take the place of others")
	}
}

// Whoever reaches the port cannot make the API server review tokens without end.
func TestTokensAreLimited(t *testing.T) {
	s := &server{tokens: newReviews()}
	s.tokens.limit = flowcontrol.NewFakeNeverRateLimiter()
	s.tokens.put(sha256.Sum256([]byte("known")), authenticationv1.UserInfo{Username: "reader"}, time.Now())
	for token, want := range map[string]int{"known": 0, "unknown": http.StatusTooManyRequests, "": http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodGet, "/metrics/resource", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		if _, code, why := s.identify(r, true); code != want {
			t.Errorf("token %q: %d %s, want %d", token, code, why, want)
		}
	}
}
