package clusterdns

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
)

const (
	// maxConns bounds the TCP connections, maxQueries the questions over one of them.
	maxConns, maxQueries = 256, 1000
	// idle is how long a TCP connection may wait for its next question (RFC 7766, section 6.2.3).
	idle = 10 * time.Second
	// exchangeTimeout bounds the reading and the writing of one message.
	exchangeTimeout = 2 * time.Second
)

// Server answers over UDP and TCP from the newest Zone.
type Server struct {
	zone    atomic.Pointer[Zone]
	answers [32]atomic.Uint64 // by response code
}

// Set makes z the zone that is answered from.
func (s *Server) Set(z *Zone) { s.zone.Store(z) }

// Zone is what Set got last; nil: nothing yet.
func (s *Server) Zone() *Zone { return s.zone.Load() }

// Answers is how many answers had each response code: NOERROR, NXDOMAIN, ...
func (s *Server) Answers() map[string]uint64 {
	out := map[string]uint64{}
	for code := range s.answers {
		if n := s.answers[code].Load(); n > 0 {
			out[dns.RcodeToString[code]] = n
		}
	}
	return out
}

// Run answers what comes to both sockets until ctx ends, and closes them.
func (s *Server) Run(ctx context.Context, udp net.PacketConn, tcp net.Listener) error {
	servers := []*dns.Server{
		{PacketConn: udp, UDPSize: udpSize, Handler: s.handler(true)},
		{
			Listener: netutil.LimitListener(tcp, maxConns), MaxTCPQueries: maxQueries,
			ReadTimeout: exchangeTimeout, WriteTimeout: exchangeTimeout, IdleTimeout: func() time.Duration { return idle },
			Handler: s.handler(false),
		},
	}
	ended := make(chan error, len(servers))
	for _, server := range servers {
		// Replies to what is not a question are never made, and what does not parse is not worth one.
		server.MsgAcceptFunc = accept
		go func() { ended <- server.ActivateAndServe() }()
	}
	var err error
	left := len(servers)
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	// Sockets first: ActivateAndServe ends even where it had not begun.
	udp.Close()
	tcp.Close()
	for _, server := range servers {
		last, cancel := context.WithTimeout(context.Background(), exchangeTimeout/4)
		server.ShutdownContext(last) //nolint:errcheck // what does not end in time ends with the process
		cancel()
	}
	for range left {
		<-ended
	}
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept leaves the judgement of messages to Zone.Answer, except that what claims to be an answer is dropped unread.
func accept(h dns.Header) dns.MsgAcceptAction {
	const response = 1 << 15
	if h.Bits&response != 0 {
		return dns.MsgIgnore
	}
	if h.Qdcount > 1 || h.Ancount > 1 || h.Nscount > 1 || h.Arcount > 2 {
		return dns.MsgReject
	}
	return dns.MsgAccept
}

// handler answers one question.
func (s *Server) handler(overUDP bool) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		z := s.zone.Load()
		var m *dns.Msg
		if z == nil { // nothing was read yet: clients ask elsewhere, or again
			m = new(dns.Msg)
			m.SetRcode(q, dns.RcodeServerFailure)
		} else if m = z.Answer(q, overUDP); m == nil {
			return
		}
		s.answers[m.Rcode%len(s.answers)].Add(1)
		w.WriteMsg(m) //nolint:errcheck // the client has gone
	}
}
