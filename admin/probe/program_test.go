package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestProgram(t *testing.T) {
	tcp, _ := serve(t)
	nobody := closed(t)
	for _, test := range []struct {
		name   string
		args   []string
		code   int
		ok     []bool // of the results, in any order
		stderr string
	}{
		{"nothing to do", nil, 2, nil, "prober answers and asks"},
		{"something unknown", []string{"dance"}, 2, nil, "prober answers and asks"},
		{"an unknown flag", []string{"get", "--fast", "tcp://" + tcp}, 2, nil, "flag provided but not defined: -fast"},
		{"no URL", []string{"get"}, 2, nil, "get needs a URL"},
		{"no tries", []string{"get", "--tries", "0", "tcp://" + tcp}, 2, nil, "no number may be zero"},
		{"several URLs", []string{"get", "--tries", "1", "tcp://" + tcp, "http://" + tcp + "/"}, 0, []bool{true, true}, ""},
		{"a URL several times", []string{"get", "--count", "3", "--parallel", "1", "http://" + tcp + "/"}, 0, []bool{true, true, true}, ""},
		{"one that fails", []string{"get", "--tries", "1", "tcp://" + tcp, "tcp://" + nobody}, 1, []bool{true, false}, "1 of 2 did not succeed"},
		{"a port that is taken", []string{"serve", "--port", strings.TrimPrefix(tcp, "127.0.0.1:")}, 1, nil, "address already in use"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := new(Program).Run(t.Context(), test.args, &stdout, &stderr); code != test.code || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q in it", code, test.code, stderr.String(), test.stderr)
			}
			count := map[bool]int{}
			dec := json.NewDecoder(&stdout)
			for {
				var r Result
				if err := dec.Decode(&r); err != nil {
					break // checked by the number
				}
				count[r.OK]++
			}
			want := map[bool]int{}
			for _, ok := range test.ok {
				want[ok]++
			}
			if fmt.Sprint(count) != fmt.Sprint(want) {
				t.Errorf("results %v, want %v", count, want)
			}
		})
	}
}

func TestProgramServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		code <- (&Program{Identity: rome}).Run(ctx, []string{"serve", "--port", fmt.Sprint(port)}, io.Discard, io.Discard)
	}()
	c := &Client{Timeout: time.Second, Tries: 100, Pause: 10 * time.Millisecond}
	for _, scheme := range []string{"http", "udp"} {
		if r := c.Try(t.Context(), fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)); !r.OK || r.Answer == nil || r.Answer.Identity != rome {
			t.Errorf("%s: %+v", scheme, r)
		}
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}
