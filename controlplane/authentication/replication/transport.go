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
)

const (
	// maxAnswer bounds what is read of one answer, in bytes: more than one object of the size that an API server stores.
	// What it decodes to can be twenty times as much.
	maxAnswer = 4 << 20
	// maxListing bounds what is read of all pages of one list, in bytes.
	maxListing = 24 << 20
	// requestTimeout bounds a request. Watches are ended by the server before.
	requestTimeout = 20 * time.Second
	// watchTimeout is how long a watch lasts.
	watchTimeout = 4 * time.Minute
)

var (
	errAnswerTooLong  = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)
	errListingTooLong = fmt.Errorf("the list is longer than %d MiB", maxListing>>20)
)

// httpClient speaks to the API server of another party: it follows nobody elsewhere, and reads so much and no more.
func httpClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := rest.TransportFor(cfg)
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

// withBudget bounds what is read of all answers to requests of one context, in bytes.
func withBudget(ctx context.Context, n int64) context.Context {
	budget := new(atomic.Int64)
	budget.Store(n)
	return context.WithValue(ctx, budgetKey{}, budget)
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
	b.left -= n
	if b.budget != nil && b.budget.Add(-int64(n)) < 0 {
		return 0, errListingTooLong
	}
	return n, err
}
