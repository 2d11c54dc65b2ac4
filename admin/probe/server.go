package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Port is where a Server listens, for TCP and UDP: one that needs no privilege.
const Port = 8080

// maxDownload bounds what one request may ask for.
const maxDownload = 64 << 20

// Server answers HTTP requests and datagrams with an Answer.
//
//	GET /            the Answer as a line of JSON
//	GET /?bytes=N    the same, and N bytes more
//	datagram         its first line, the Answer, and as many bytes more as it had
type Server struct {
	Identity Identity
}

// Serve answers until ctx ends. Either of the two may be nil. It closes both.
func (s *Server) Serve(ctx context.Context, web net.Listener, datagrams net.PacketConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	run := func(serve func() error, stop func() error) {
		context.AfterFunc(ctx, func() { _ = stop() }) // serve returns
		wg.Go(func() {
			errs <- serve()
			cancel() // one without the other would be no answer to half of the questions
		})
	}
	if web != nil {
		h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
		run(func() error { return h.Serve(web) }, h.Close)
	}
	if datagrams != nil {
		run(func() error { return s.echo(datagrams) }, datagrams.Close)
	}
	<-ctx.Done()
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := 0
	if ask := r.URL.Query().Get("bytes"); ask != "" {
		var err error
		if n, err = strconv.Atoi(ask); err != nil || n < 0 || n > maxDownload {
			http.Error(w, "bytes is a number up to "+strconv.Itoa(maxDownload), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(s.answer(r.RemoteAddr))
	for err == nil && n > 0 { // a client that is gone needs no more
		part := pattern[:min(n, len(pattern))]
		n -= len(part)
		_, err = w.Write(part)
	}
}

// answer is a line.
func (s *Server) answer(client string) []byte {
	host, _, err := net.SplitHostPort(client)
	if err != nil {
		host = client
	}
	b, _ := json.Marshal(Answer{Identity: s.Identity, Source: host}) // plain fields
	return append(b, '\n')
}

// pattern is what a download consists of.
var pattern = bytes.Repeat([]byte("0123456789abcdef"), 1<<10)

// maxDatagram is the largest that UDP carries.
const maxDatagram = 65507

func (s *Server) echo(c net.PacketConn) error {
	for b := make([]byte, maxDatagram); ; {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		nonce, padding, found := bytes.Cut(b[:n], []byte{'\n'})
		if !found || !bytes.HasPrefix(nonce, []byte(datagramMark)) {
			continue // somebody else's: no answer, so that two servers never talk to each other
		}
		reply := append(append(bytes.Clone(nonce[len(datagramMark):]), '\n'), s.answer(from.String())...)
		if missing := n - len(reply); missing > 0 {
			reply = append(reply, padding[:min(missing, len(padding))]...)
		}
		_, _ = c.WriteTo(reply, from) // the client asks again
	}
}

// datagramMark begins a question, and no answer.
const datagramMark = "probe "
