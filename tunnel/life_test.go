package tunnel

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/underlay"
)

func TestRunEndsWhenTheOverlayFails(t *testing.T) {
	noLeaks(t)
	o := &funcOverlay{read: func([][]byte, []int, int) (int, int, error) { return 0, 0, errTest }}
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Overlay: o, Listen: newMemNet().listen("192.0.2.1")})
	a.apply(t, func(c *Config) { c.PrivateKey = a.key })
	if err := a.Run(t.Context()); !errors.Is(err, errTest) {
		t.Errorf("Run: %v", err)
	}
}

// The owner of the overlay may close it before Run does.
func TestRunEndsWhenTheOverlayIsClosed(t *testing.T) {
	noLeaks(t)
	for _, orderly := range []bool{true, false} {
		a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: newMemNet().listen("192.0.2.1")})
		a.apply(t, func(c *Config) { c.PrivateKey = a.key })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if orderly {
			cancel()
		}
		a.overlay.CloseRead()
		if err := a.Run(ctx); orderly != (err == nil) || !orderly && !errors.Is(err, os.ErrClosed) {
			t.Errorf("context over: %v, Run: %v", orderly, err)
		}
	}
}

func TestRunEndsWithAStuckSocket(t *testing.T) {
	noLeaks(t)
	stuck, closed := make(chan struct{}), make(chan struct{})
	var once, closing sync.Once
	s := &stuckSocket{
		funcSocket: funcSocket{
			read: func([][]byte, []int, []underlay.Origin) (int, error) { <-closed; return 0, net.ErrClosed },
			write: func([]underlay.Datagram) (int, error) {
				once.Do(func() { close(stuck) })
				<-closed
				return 0, net.ErrClosed
			},
		},
		shut: func() { closing.Do(func() { close(closed) }) },
	}
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: func(uint16) (Socket, error) { return s, nil }})
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: newMemNet().listen("192.0.2.2")})
	connect(t, a, b)
	defer b.Close()
	a.run(t)
	a.overlay.out <- ipPacket(a.inner, b.inner, 1, 100)
	receive(t, stuck, "write")
	// An Apply that waits for the writer must not keep Run from ending.
	applied := make(chan error, 1)
	go func() { applied <- a.Apply(Config{PrivateKey: a.key, ListenPort: 9}) }()
	a.stop(t)
	receive(t, applied, "end of Apply")
}

type stuckSocket struct {
	funcSocket
	shut func()
}

func (s *stuckSocket) Close() error { s.shut(); return s.funcSocket.Close() }

func TestLifeOfATunnel(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	if _, err := New(Options{}); err == nil {
		t.Error("New without an Overlay")
	}
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	if s := a.Stats(); !reflect.DeepEqual(s, Stats{}) {
		t.Errorf("before anything: %+v", s)
	}
	if err := a.Apply(Config{}); err == nil {
		t.Error("Apply of nothing")
	}
	a.apply(t, func(c *Config) { c.PrivateKey = a.key; c.ListenPort = 1 })
	a.apply(t, func(c *Config) { c.ListenPort = 2 })
	if n.open() != 1 || a.Stats().ListenPort != 2 {
		t.Errorf("%d sockets, %+v", n.open(), a.Stats())
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil || n.open() != 0 {
		t.Errorf("Close: %v, %d sockets left", err, n.open())
	}
	if err := a.Run(t.Context()); err == nil {
		t.Error("Run after Close")
	}
	if err := a.Apply(a.config); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}

	b := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b.apply(t, func(c *Config) { c.PrivateKey = b.key })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Run(ctx); err != nil || n.open() != 0 {
		t.Errorf("Run with a context that is over: %v, %d sockets left", err, n.open())
	}
	if err := b.Run(t.Context()); err == nil {
		t.Error("Run ran twice")
	}
	if err := errors.Join(b.Close()); err != nil {
		t.Error(err)
	}
	if s := b.Stats(); s.ListenPort != 0 {
		t.Errorf("after Run: %+v", s)
	}
}

func TestLogHoldsNoKeys(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	n := newMemNet()
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1"), Logger: log})
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2"), Logger: log})
	connect(t, a, b)
	a.run(t)
	b.run(t)
	cross(t, a, b, 1)
	a.apply(t, func(c *Config) { c.ListenPort = 5 })
	fresh := GeneratePrivateKey()
	a.apply(t, func(c *Config) { c.PrivateKey = fresh })
	a.stop(t)
	b.stop(t)
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(out.String(), "handshake") {
		t.Errorf("no debug output:\n%s", out.String())
	}
	for _, k := range []PrivateKey{a.key, b.key, fresh} {
		for _, secret := range []string{hex.EncodeToString(k[:4]), base64.StdEncoding.EncodeToString(k[:])[:8]} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("the log holds a private key:\n%s", out.String())
			}
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
