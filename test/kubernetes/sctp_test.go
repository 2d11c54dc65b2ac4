package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/logging"
	"github.com/pion/sctp"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// signalText is a Service of SCTP in front of the servers of shop/web. Its port is the one that package sctp has for both ends.
const signalText = `
apiVersion: v1
kind: Service
metadata: {name: signal, namespace: shop}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{name: m3ua, port: 5000, protocol: SCTP}]}
`

// sctpPatience bounds one attempt to associate, and one answer.
const sctpPatience = 5 * time.Second

// sctpConn is the packets of SCTP that a pod and one other address exchange. Both ends are in the test's own process, on
// raw sockets of the pods' networks: not every kernel has SCTP, but each translates its addresses and tracks it.
type sctpConn struct {
	*net.IPConn
	peer atomic.Pointer[net.IPAddr] // of a server: who was heard last
}

// dialSCTP opens the socket of a pod. Without a peer it is that of a server.
func dialSCTP(t *testing.T, in *kubelab.Pod, own, peer netip.Addr) *sctpConn {
	t.Helper()
	network := "ip4:132"
	if own.Is6() {
		network = "ip6:132"
	}
	c := new(sctpConn)
	if peer.IsValid() {
		c.peer.Store(&net.IPAddr{IP: peer.AsSlice()})
	}
	err := in.Do(func() (err error) {
		c.IPConn, err = net.ListenIP(network, &net.IPAddr{IP: own.AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Read implements net.Conn.
func (c *sctpConn) Read(b []byte) (int, error) {
	n, from, err := c.ReadFromIP(b)
	if err == nil {
		c.peer.Store(from)
	}
	return n, err
}

// Write implements net.Conn.
func (c *sctpConn) Write(b []byte) (int, error) {
	to := c.peer.Load()
	if to == nil {
		return 0, errors.New("nobody was heard yet")
	}
	return c.WriteToIP(b, to)
}

// quiet says nothing of packets that are not of an association.
func quiet() logging.LoggerFactory {
	f := logging.NewDefaultLoggerFactory()
	f.DefaultLogLevel = logging.LogLevelDisabled
	return f
}

// serveSCTP has a pod answer each message of one association with the name of the pod and the address that asked, until the
// socket is closed.
func serveSCTP(in *kubelab.Pod, c *sctpConn) {
	a, err := sctp.ServerWithOptions(sctp.WithNetConn(c), sctp.WithLoggerFactory(quiet()))
	if err != nil {
		return // nobody asked
	}
	defer a.Close()
	s, err := a.AcceptStream()
	if err != nil {
		return
	}
	b := make([]byte, 1500)
	for {
		if _, err := s.Read(b); err != nil {
			return
		}
		if _, err := s.Write([]byte(in.Name + " " + c.peer.Load().String())); err != nil {
			return
		}
	}
}

// askSCTP makes an association from a pod with whoever is at the address, and returns the answer to a message.
func askSCTP(ctx context.Context, t *testing.T, from *kubelab.Pod, own, at netip.Addr) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, sctpPatience)
	defer cancel()
	c := dialSCTP(t, from, own, at)
	defer c.IPConn.Close()
	a, err := sctp.ClientContext(ctx, sctp.WithNetConn(c), sctp.WithLoggerFactory(quiet()))
	if err != nil {
		return "", fmt.Errorf("an association with %s: %w", at, err)
	}
	defer a.Abort("")
	s, err := a.OpenStream(1, sctp.PayloadTypeWebRTCString)
	if err != nil {
		return "", err
	}
	if _, err := s.Write([]byte("?")); err != nil {
		return "", err
	}
	if err := s.SetReadDeadline(time.Now().Add(sctpPatience)); err != nil {
		return "", err
	}
	b := make([]byte, 1500)
	n, err := s.Read(b)
	return string(b[:n]), err
}

// testSCTP has b use a Service of SCTP of a, at its address of each family that there is.
func testSCTP(t *testing.T, s *sharing) {
	s.export(t, "signal", signalText)
	servers, err := s.a.Pods(t.Context(), shop, map[string]string{"app": "web"})
	if err != nil {
		t.Fatal(err)
	}
	from, err := s.b.Pod(t.Context(), shop, "asker")
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range from.Addrs {
		lab.Eventually(t, patience, "an association by the Service from "+own.String(), func() error {
			ips, err := addresses(t.Context(), s.b, shop, "signal")
			if err != nil {
				return err
			}
			i := slices.IndexFunc(ips, func(at netip.Addr) bool { return at.Is4() == own.Is4() })
			if i < 0 {
				return fmt.Errorf("its addresses are %s", ips)
			}
			for _, server := range servers {
				for _, at := range server.Addrs {
					if at.Is4() == own.Is4() {
						c := dialSCTP(t, server, at, netip.Addr{})
						defer c.IPConn.Close()
						go serveSCTP(server, c)
					}
				}
			}
			told, err := askSCTP(t.Context(), t, from, own, ips[i])
			if err == nil && (!strings.HasPrefix(told, "web-") || !strings.HasSuffix(told, " "+s.remote(t, s.a, own).String())) {
				err = fmt.Errorf("%s answers %q", ips[i], told)
			}
			return err
		})
	}
}
