package replication

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes: some hundred objects of the size that an API server stores.
	maxAnswer = 32 << 20
	// requestTimeout bounds a request. Watches are ended by the server before.
	requestTimeout = 20 * time.Second
	// watchTimeout is how long a watch lasts.
	watchTimeout = 4 * time.Minute
)

var errAnswerTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

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

// bounded bounds the bodies of answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errAnswerTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
