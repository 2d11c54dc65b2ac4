package probe

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rome = Identity{Cluster: "rome", Pod: "a", Node: "n1"}

// serve runs a Server on sockets until the test ends.
func serve(t *testing.T) (tcp, udp string) {
	t.Helper()
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- (&Server{Identity: rome}).Serve(ctx, web, datagrams) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return web.Addr().String(), datagrams.LocalAddr().String()
}

// closed is an address where nobody listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silent accepts connections, reads a request and answers with a beginning.
func silent(t *testing.T, beginning string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte(beginning))
			context.AfterFunc(ctx, func() { c.Close() })
		}
	}()
	return l.Addr().String()
}

func TestTry(t *testing.T) {
	tcp, udp := serve(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		case "/page":
			_, _ = w.Write([]byte("<html>"))
		default:
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	defer page.Close()
	nobody := closed(t)
	const line = 62 // bytes of the answer
	answer := &Answer{Identity: rome, Source: "127.0.0.1"}
	half := silent(t, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{\"cluster\":\"rome\",\"pod\":\"a\",\"node\":\"n1\",\"source\":\"127.0.0.1\"}\n0123")
	for _, test := range []struct {
		name string
		url  string
		want Result
	}{
		{"a request", "http://" + tcp + "/", Result{OK: true, Status: 200, Answer: answer, Bytes: line, Tries: 1}},
		{"a small download", "http://" + tcp + "/?bytes=3", Result{OK: true, Status: 200, Answer: answer, Bytes: line + 3, Tries: 1}},
		{"a large download", "http://" + tcp + "/?bytes=3000001", Result{OK: true, Status: 200, Answer: answer, Bytes: line + 3000001, Tries: 1}},
		{"too large a download", "http://" + tcp + "/?bytes=99999999999", Result{Tries: 2, Error: "bytes=99999999999: want a number up to 67108864"}},
		{"a download that stalls", "http://" + half + "/?bytes=4900", Result{Status: 200, Answer: answer, Bytes: line + 4, Tries: 2, Stalled: true,
			Error: "4 of 4900 bytes came, then no answer within 200ms"}},
		{"somebody else's page", page.URL + "/page", Result{OK: true, Status: 200, Bytes: 6, Tries: 1}},
		{"a redirect", page.URL + "/moved", Result{OK: true, Status: 301, Bytes: 44, Tries: 1}},
		{"a refusal", page.URL + "/", Result{Status: 418, Tries: 2, Error: "HTTP status 418 I'm a teapot"}},
		{"a connection", "tcp://" + tcp, Result{OK: true, Tries: 1}},
		{"nobody", "tcp://" + nobody, Result{Tries: 2, Error: "connection refused"}},
		{"nobody, with HTTP", "http://" + nobody + "/", Result{Tries: 2, Error: "connection refused"}},
		{"no answer", "http://" + silent(t, "") + "/", Result{Tries: 2, Error: "no answer within 200ms"}},
		{"a datagram", "udp://" + udp, Result{OK: true, Answer: answer, Bytes: 27 + line, Tries: 1}},
		{"a large datagram", "udp://" + udp + "?bytes=9000", Result{OK: true, Answer: answer, Bytes: 9000, Tries: 1}},
		{"something unknown", "ftp://" + tcp, Result{Tries: 2, Error: `"ftp" is none of http, tcp, udp`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Client{Timeout: 200 * time.Millisecond, Tries: 2, Pause: time.Millisecond}
			got := c.Try(t.Context(), test.url)
			if got.Seconds < 0 || got.Seconds > 5 {
				t.Errorf("it took %v s", got.Seconds)
			}
			test.want.URL = test.url
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(Result{}, "Seconds")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &Client{Timeout: time.Hour, Tries: 10, Pause: time.Hour, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if r := c.Try(ctx, "tcp://192.0.2.1:1"); r.OK || r.Tries != 1 || r.Error != "context canceled" {
		t.Errorf("%+v", r)
	}
}

func TestTryAgain(t *testing.T) {
	tries := 0
	c := &Client{Timeout: time.Second, Tries: 3, Dial: func(context.Context, string, string) (net.Conn, error) {
		if tries++; tries < 3 {
			return nil, errors.New("not yet")
		}
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}}
	if r := c.Try(t.Context(), "tcp://192.0.2.1:1"); !r.OK || r.Tries != 3 || r.Error != "" {
		t.Errorf("%+v", r)
	}
}

func TestServerRefuses(t *testing.T) {
	for _, target := range []string{"/?bytes=x", "/?bytes=-1", "/?bytes=67108865"} {
		w := httptest.NewRecorder()
		(&Server{Identity: rome}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", target, w.Code)
		}
	}
}

// TestServersDoNotTalk sends an answer as if it were a question.
func TestServersDoNotTalk(t *testing.T) {
	_, udp := serve(t)
	c, err := net.Dial("udp", udp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, question := range []string{"", "probe without an end", "N0NCE\n{}\n", "probe marks\n"} {
		if _, err := c.Write([]byte(question)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, err := c.Read(b)
	if err != nil || !strings.HasPrefix(string(b[:n]), "marks\n") { // datagrams on loopback keep their order
		t.Errorf("answered %q (%v)", b[:n], err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"cluster":"rome","pod":"a","node":"n1","source":"127.0.0.1"}`))
	f.Add([]byte("<html>"))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if a := parseAnswer(bytes.Clone(line)); a != nil && (a.Pod == "" || a.Source == "") {
			t.Errorf("%q: %+v", line, a)
		}
	})
}
