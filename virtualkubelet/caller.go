package virtualkubelet

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sluice-net/sluice/objects/mirror"
)

const (
	// reviewedFor is how long a token counts that the API server knew.
	reviewedFor = time.Minute
	// maxReviewed is how many tokens are remembered: those who read metrics are few.
	maxReviewed = 100
	// reviewRate and reviewBurst bound how often the API server is asked about tokens, per second: everybody who reaches the
	// port can show some.
	reviewRate, reviewBurst = 5, 20
	// maxToken is the length in bytes up to which a token is looked at.
	maxToken = 16 << 10
)

// reviews remembers whose tokens are.
type reviews struct {
	limit flowcontrol.RateLimiter

	mu sync.Mutex
	by map[[sha256.Size]byte]review
}

// review is what the API server said of a token.
type review struct {
	who   authenticationv1.UserInfo
	until time.Time
}

func newReviews() reviews {
	return reviews{limit: flowcontrol.NewTokenBucketRateLimiter(reviewRate, reviewBurst), by: map[[sha256.Size]byte]review{}}
}

func (r *reviews) get(of [sha256.Size]byte, now time.Time) (authenticationv1.UserInfo, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.by[of]
	return known.who, ok && now.Before(known.until)
}

func (r *reviews) put(of [sha256.Size]byte, who authenticationv1.UserInfo, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.by) >= maxReviewed {
		maps.DeleteFunc(r.by, func(_ [sha256.Size]byte, known review) bool { return !now.Before(known.until) })
	}
	if len(r.by) < maxReviewed {
		r.by[of] = review{who, now.Add(reviewedFor)}
	}
}

// identify says who asks: by the certificate, or else, where tokens count, by what the API server says of the token. A
// code other than zero is that of a refusal.
func (s *server) identify(r *http.Request, tokens bool) (who authenticationv1.UserInfo, code int, why string) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.PeerCertificates[0].Subject
		return authenticationv1.UserInfo{Username: subject.CommonName, Groups: append(slices.Clone(subject.Organization), "system:authenticated")}, 0, ""
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !tokens {
		return who, http.StatusUnauthorized, "a client certificate is required"
	} else if !ok || token == "" || len(token) > maxToken {
		return who, http.StatusUnauthorized, "a client certificate or a bearer token is required"
	}
	sum, now := sha256.Sum256([]byte(token)), time.Now()
	if who, ok := s.tokens.get(sum, now); ok {
		return who, 0, ""
	}
	if !s.tokens.limit.TryAccept() {
		return who, http.StatusTooManyRequests, "too many tokens that are not known yet: try again in a second"
	}
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	answer := new(authenticationv1.TokenReview)
	err := s.k.home.authentication.Post().Resource("tokenreviews").
		Body(&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}).Do(ctx).Into(answer)
	switch {
	case err != nil:
		return who, http.StatusServiceUnavailable, "the API server does not say whose token this is: " + mirror.PlainError(err)
	case !answer.Status.Authenticated:
		return who, http.StatusUnauthorized, "the API server does not know the token"
	}
	s.tokens.put(sum, answer.Status.User, now)
	return answer.Status.User, 0, ""
}

// authorize asks the API server whether the caller may do what a method asks for with a subresource of a node. Zero: it
// may.
func (s *server) authorize(ctx context.Context, who authenticationv1.UserInfo, node, subresource, method string) (code int, why string) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range who.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Version: "v1", Resource: "nodes", Subresource: subresource, Name: node, Verb: verb(method)},
	}}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer := new(authorizationv1.SubjectAccessReview)
	if err := s.k.home.authorization.Post().Resource("subjectaccessreviews").Body(review).Do(ctx).Into(answer); err != nil {
		return http.StatusServiceUnavailable, "the API server does not say whether this is allowed: " + mirror.PlainError(err)
	}
	if !answer.Status.Allowed || answer.Status.Denied {
		return http.StatusForbidden, fmt.Sprintf("user %q may not %s nodes/%s of node %s", who.Username, verb(method), subresource, node)
	}
	return 0, ""
}

// refuse answers a request that is not carried out, and ends the connection: whoever may not ask holds none.
func refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, code)
}

// verb is what a method asks for, as for a kubelet.
func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}
