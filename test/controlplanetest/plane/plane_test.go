package plane

import (
	"fmt"
	"net"
	"testing"
)

func TestReservePort(t *testing.T) {
	p := new(Plane)
	port, err := p.reservePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Errorf("the program cannot listen: %v", err)
	} else {
		l.Close()
	}
	again := func() error {
		l, err := net.Listen("tcp", p.reserved[0].Addr().String())
		if err == nil {
			l.Close()
		}
		return err
	}
	if again() == nil {
		t.Error("another plane can reserve it")
	}
	p.Stop()
	if err := again(); err != nil {
		t.Errorf("after Stop: %v", err)
	}
}
