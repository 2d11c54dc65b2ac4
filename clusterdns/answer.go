package clusterdns

import (
	"math/rand/v2"
	"strings"

	"github.com/miekg/dns"
)

const (
	// udpSize is the largest answer over UDP, whatever a client offers: it crosses every network whole, as the DNS
	// flag day of 2020 agreed.
	udpSize = 1232
	// ednsVersion is the only version of EDNS that there is (RFC 6891).
	ednsVersion = 0
	// minRecord is the size of the smallest record, an A record whose name is compressed (RFC 1035, sections 3.2.1 and 4.1.4).
	minRecord = 16
)

// Answer answers one message. It returns nil for what gets no answer: answers, which would be answered in turn.
// overUDP bounds the size.
//
//	a name of the zone                 its records, else an empty answer (NODATA), with the SOA record
//	a name that is not in the zone     NXDOMAIN, with the SOA record
//	another domain, class, transfers   REFUSED
//	ANY                                one HINFO record (RFC 8482)
//	no question, or several            FORMERR
//	updates, notifications             NOTIMP
func (z *Zone) Answer(q *dns.Msg, overUDP bool) *dns.Msg {
	if q.Response {
		return nil
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.Compress = true
	m.RecursionAvailable = false
	size := dns.MaxMsgSize
	if overUDP {
		size = dns.MinMsgSize
	}
	e := q.IsEdns0()
	if e != nil && overUDP {
		size = min(max(int(e.UDPSize()), dns.MinMsgSize), udpSize)
	}
	if e != nil && e.Version() != ednsVersion {
		m.Rcode = dns.RcodeBadVers
	} else {
		m.Rcode = z.fill(m, q, size/minRecord+1)
	}
	if e != nil {
		m.SetEdns0(udpSize, e.Do())
	}
	m.Truncate(size)
	return m
}

// fill finds what is asked for, at most so many records, of which at least one does not fit. It returns the response code.
func (z *Zone) fill(m, q *dns.Msg, most int) (rcode int) {
	if q.Opcode != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	if len(q.Question) != 1 {
		return dns.RcodeFormatError
	}
	asked := q.Question[0]
	name := strings.ToLower(asked.Name)
	if asked.Qclass != dns.ClassINET || !dns.IsSubDomain(z.name, name) || asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR {
		return dns.RcodeRefused
	}
	m.Authoritative = true
	found, exists := z.nodes[name]
	switch {
	case !exists:
		rcode = dns.RcodeNameError
	case asked.Qtype == dns.TypeANY:
		m.Answer = []dns.RR{&dns.HINFO{Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: z.ttl}, Cpu: "RFC8482"}}
	default:
		m.Answer = z.records(found, asked.Qtype, asked.Name, min(most, maxRecords), rand.Int())
		seen := map[string]bool{} // several ports may be at one target
		for _, r := range m.Answer {
			if srv, ok := r.(*dns.SRV); ok && !seen[srv.Target] {
				seen[srv.Target] = true
				m.Extra = append(m.Extra, z.records(z.nodes[srv.Target], dns.TypeA, srv.Target, maxRecords, 0)...)
				m.Extra = append(m.Extra, z.records(z.nodes[srv.Target], dns.TypeAAAA, srv.Target, maxRecords, 0)...)
			}
		}
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{z.soa}
	}
	return rcode
}
