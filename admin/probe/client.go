package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// Client tries URLs.
//
//	http://HOST:PORT/            a request; 2xx and 3xx are well
//	http://HOST:PORT/?bytes=N    a download from a Server
//	tcp://HOST:PORT              a connection
//	udp://HOST:PORT?bytes=N      a datagram of that size, to a Server
type Client struct {
	// Dial makes connections. Nil: those of this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout is how long nothing may come, in each step of one try.
	Timeout time.Duration
	// Tries is how often a URL is tried, Pause how long it waits in between.
	Tries int
	Pause time.Duration
}

// Defaults of a Client.
const (
	DefaultTimeout = 5 * time.Second
	DefaultTries   = 3
	DefaultPause   = 500 * time.Millisecond
)

// Try tries a URL until it succeeds, as often as the Client may.
func (c *Client) Try(ctx context.Context, target string) Result {
	r := Result{URL: target}
	u, err := url.Parse(target)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	for n := 1; ; n++ {
		start := time.Now()
		r = c.once(ctx, u)
		r.URL, r.Tries, r.Seconds = target, n, time.Since(start).Seconds()
		if r.OK || n >= c.Tries || ctx.Err() != nil {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(c.Pause):
		}
	}
}

// once is one try.
func (c *Client) once(ctx context.Context, u *url.URL) (r Result) {
	var err error
	switch u.Scheme {
	case "http":
		err = c.get(ctx, u, &r)
	case "tcp":
		var conn net.Conn
		if conn, err = c.dial(ctx, "tcp", u.Host); err == nil {
			err = conn.Close()
		}
	case "udp":
		err = c.exchange(ctx, u, &r)
	default:
		err = fmt.Errorf("%q is none of http, tcp, udp", u.Scheme)
	}
	if err != nil {
		r.Error = c.explain(err)
		return r
	}
	r.OK = true
	return r
}

// explain shortens what packages wrap around a cause, and says how long was
// waited for nothing.
func (c *Client) explain(err error) string {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", c.Timeout)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err.Error()
}

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &patientConn{Conn: conn, patience: c.Timeout}, nil
}

// patientConn gives up when nothing comes for a while, however long it takes as a
// whole.
type patientConn struct {
	net.Conn
	patience time.Duration
}

func (c *patientConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// get is one request, on a connection of its own.
func (c *Client) get(ctx context.Context, u *url.URL, r *Result) error {
	want, err := size(u)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: c.dial, DisableKeepAlives: true, DisableCompression: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req) // follows no redirect
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if r.Status = resp.StatusCode; r.Status < 200 || r.Status > 399 {
		return fmt.Errorf("HTTP status %s", resp.Status)
	}
	body := bufio.NewReader(io.LimitReader(resp.Body, maxDownload+maxDatagram))
	line, err := body.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	r.Bytes = int64(len(line))
	if r.Answer = parseAnswer(line); r.Answer == nil {
		return nil // somebody else's page: its beginning is enough
	}
	n, err := io.Copy(io.Discard, body)
	r.Bytes += n
	switch {
	case err != nil && n < want:
		r.Stalled = true
		return fmt.Errorf("%d of %d bytes came, then %s", n, want, c.explain(err))
	case n != want:
		return fmt.Errorf("%d bytes came, want %d", n, want)
	}
	return nil
}

// size is what a URL asks for.
func size(u *url.URL) (int64, error) {
	ask := u.Query().Get("bytes")
	if ask == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(ask, 10, 64)
	if err != nil || n < 0 || n > maxDownload {
		return 0, fmt.Errorf("bytes=%s: want a number up to %d", ask, maxDownload)
	}
	return n, nil
}

// exchange sends one datagram and waits for its answer.
func (c *Client) exchange(ctx context.Context, u *url.URL, r *Result) error {
	n, err := size(u)
	if err != nil {
		return err
	}
	conn, err := c.dial(ctx, "udp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	nonce := rand.Text()
	question := append([]byte(datagramMark+nonce), '\n')
	if missing := min(int(n), maxDatagram) - len(question); missing > 0 {
		question = append(question, bytes.Repeat(pattern, missing/len(pattern)+1)[:missing]...)
	}
	if _, err := conn.Write(question); err != nil {
		return err
	}
	for b := make([]byte, maxDatagram); ; {
		n, err := conn.Read(b)
		if err != nil {
			return err
		}
		first, rest, _ := bytes.Cut(b[:n], []byte{'\n'})
		if string(first) != nonce {
			continue // late, to another question
		}
		line, _, _ := bytes.Cut(rest, []byte{'\n'})
		r.Bytes, r.Answer = int64(n), parseAnswer(line)
		return nil
	}
}

// parseAnswer returns nil for what is not a Server's.
func parseAnswer(line []byte) *Answer {
	a := new(Answer)
	if err := json.Unmarshal(line, a); err != nil || a.Pod == "" || a.Source == "" {
		return nil
	}
	return a
}
