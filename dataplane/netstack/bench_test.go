package netstack

import (
	"context"
	"io"
	"net/netip"
	"testing"
)

// BenchmarkTCP is one connection between two stacks that are each other's
// network: what a simulated pod can do at best.
func BenchmarkTCP(b *testing.B) {
	for _, tt := range []struct {
		name string
		conf Config
	}{
		{"1340", Config{MTU: 1340}},
		{"1500", Config{MTU: 1500}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			x, y := wire(b, tt.conf, tt.conf)
			l, err := y.ListenTCP(netip.AddrPortFrom(addrB4, 5001))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			received := make(chan int64, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					received <- -1
					return
				}
				n, _ := io.Copy(io.Discard, c)
				c.Close()
				received <- n
			}()
			c, err := x.DialTCP(context.Background(), netip.AddrPort{}, netip.AddrPortFrom(addrB4, 5001))
			if err != nil {
				b.Fatal(err)
			}
			chunk := make([]byte, 256<<10)
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			sent := int64(0)
			for b.Loop() {
				if _, err := c.Write(chunk); err != nil {
					b.Fatal(err)
				}
				sent += int64(len(chunk))
			}
			c.Close()
			if n := <-received; n != sent {
				b.Errorf("received %d of %d bytes", n, sent)
			}
			b.ReportMetric(float64(x.Stats().TCPRetransmits), "retransmits")
			b.ReportMetric(float64(x.Stats().EmitDropped+y.Stats().InjectDropped), "drops")
		})
	}
}

// BenchmarkInject is one ICMP echo in and its reply out.
func BenchmarkInject(b *testing.B) {
	s := newStack(b, Config{MTU: 1340}, addrA4)
	pkt := echoPacket(addrB4, addrA4, 1, 1000)
	b.SetBytes(int64(len(pkt)))
	b.ReportAllocs()
	var batch []byte
	for b.Loop() {
		s.receive(pkt)
		batch = s.out.take(batch)
	}
}

// BenchmarkQueue is the cost of the hand-over itself.
func BenchmarkQueue(b *testing.B) {
	q := newQueue(1 << 20)
	pkt := make([]byte, 1340)
	var batch []byte
	b.SetBytes(int64(len(pkt)))
	b.ReportAllocs()
	for b.Loop() {
		if !q.push(pkt) {
			batch = q.take(batch)
		}
	}
}
