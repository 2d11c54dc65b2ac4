package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

const (
	// maxAnswer bounds what is read of one answer, by [weight]: more than one object of the size that an API server stores.
	maxAnswer = 4 << 20
	// maxListing bounds what is read of all pages of one list.
	maxListing = 24 << 20
	// maxRate bounds what is read of lists in a second, on the average.
	maxRate = 4 << 20
	// valueWeight is what a value weighs more than its bytes: decoded, {"":0} takes 340.
	valueWeight = 150
	// requestTimeout bounds a request. Watches are ended by the server before.
	requestTimeout = 20 * time.Second
	// watchTimeout is how long a watch lasts.
	watchTimeout = 4 * time.Minute
)

var (
	errAnswerTooLong  = fmt.Errorf("the answer is longer than %d MiB, each value taken for %d bytes more", maxAnswer>>20, valueWeight)
	errListingTooLong = fmt.Errorf("the list is longer than %d MiB, each value taken for %d bytes more", maxListing>>20, valueWeight)
)

// httpClient speaks to the API server of another party: it follows nobody elsewhere, and reads so much and no more.
func httpClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := credentials.Transport(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the API server answers with a redirection, which is not followed")
		},
	}, nil
}

// budgetKey is the context's key of what may still be read of several answers together, an *atomic.Int64.
type budgetKey struct{}

// withBudget bounds what is read of all answers to requests of one context. left is what may still be.
func withBudget(ctx context.Context, n int64) (_ context.Context, left *atomic.Int64) {
	left = new(atomic.Int64)
	left.Store(n)
	return context.WithValue(ctx, budgetKey{}, left), left
}

// weight is how much memory and work some bytes of JSON may be. A value begins after each of these characters, or there is
// one of them in a string, which weighs too much then.
func weight(text []byte) int {
	n := len(text)
	for _, c := range text {
		if c == '{' || c == '[' || c == ',' {
			n += valueWeight
		}
	}
	return n
}

// bounded bounds the bodies of answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		budget, _ := r.Context().Value(budgetKey{}).(*atomic.Int64)
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer, budget: budget}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
	// budget is what it shares with other answers; nil: nothing.
	budget *atomic.Int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errAnswerTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	w := weight(p[:n])
	b.left -= w
	if b.budget != nil && b.budget.Add(-int64(w)) < 0 {
		return 0, errListingTooLong
	}
	return n, err
}
