package tunnel

import (
	"errors"
	"os"
	"testing"

	"golang.zx2c4.com/wireguard/tun"
)

func TestMTUChangeIsAnEvent(t *testing.T) {
	d := newTunDevice()
	d.setMTU(DefaultMTU)
	select {
	case e := <-d.Events():
		t.Errorf("event %v without a change", e)
	default:
	}
	d.setMTU(1300)
	d.setMTU(1280)
	if e := <-d.Events(); e != tun.EventMTUUpdate {
		t.Errorf("event %v", e)
	}
	if mtu, _ := d.MTU(); mtu != 1280 {
		t.Errorf("MTU %d", mtu)
	}
}

func TestReadEndsOnClose(t *testing.T) {
	d := newTunDevice()
	done := make(chan error)
	go func() {
		_, err := d.Read(nil, nil, 0)
		done <- err
	}()
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, done, "the end of Read"); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, open := <-d.Events(); open {
		t.Error("events are still open")
	}
	d.setMTU(1280) // must not send to the closed channel
}
