package virtualkubelet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds what is read of one answer of the provider's API server, in bytes. A watch is one answer as well, of
// which the client bounds each event.
const maxAnswer = 64 << 20

// errAnswerTooLong is an error of reading such an answer.
var errAnswerTooLong = fmt.Errorf("the provider's API server answers with more than %d MiB", maxAnswer>>20)

// boundedAnswers bounds the bodies of answers.
type boundedAnswers struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "true" {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer}
	}
	return response, err
}

// WrappedRoundTripper is how client-go finds the connections below.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// The end may be exactly here.
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		return 0, errAnswerTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
