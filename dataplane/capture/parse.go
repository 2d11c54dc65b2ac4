package capture

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/nat/packet"
)

// FilterSyntax says which expressions ParseFilter reads, for help texts.
const FilterSyntax = `A filter is an expression in tcpdump's syntax (pcap-filter(7)), with these parts:
  host ADDR, net CIDR, port N, portrange N-M    source or destination; with src or dst
                                                in front only that one
  tcp, udp, sctp, icmp, icmp6, ip, ip6, arp     alone; in front of port tcp, udp or sctp,
                                                in front of host and net ip or ip6
  not, and, or, parentheses                     also !, &&, ||
As in tcpdump, "and" and "or" have the same precedence, from left to right: use
parentheses. A repeated keyword may be left out: port 80 or 443. Names are not looked
up. A filter with a port matches only the first fragment of a packet.`

// FilterError says what is wrong with a filter, and where.
type FilterError struct {
	Text   string
	Column int // in characters, from 1
	Reason string
}

// Error shows the place below the expression.
func (e *FilterError) Error() string {
	return fmt.Sprintf("column %d: %s\n  %s\n  %s^", e.Column, e.Reason, e.Text, strings.Repeat(" ", e.Column-1))
}

// maxFilter bounds an expression, and with it what a packet costs.
const maxFilter = 2048

// ParseFilter reads an expression; FilterSyntax says what it may hold. An empty one
// is no filter: nil. The error is a *FilterError.
func ParseFilter(text string) (*Filter, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	p := parser{text: text}
	if len(text) > maxFilter {
		p.text = text[:40] + "..."
		return nil, p.errorf(0, "the filter has %d characters, at most %d are read", len(text), maxFilter)
	}
	if err := p.scan(); err != nil {
		return nil, err
	}
	e, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.text == ")" {
		return nil, p.errorf(t.at, "this ) closes nothing")
	} else if t.text != "" {
		return nil, p.errorf(t.at, "%q stands where and, or, or the end is expected", t.text)
	}
	f := &Filter{text: strings.TrimSpace(text)}
	f.start = f.compile(e, accept, refuse)
	return f, nil
}

// expr is a parsed expression: one test, or one or two expressions with an operator.
type expr struct {
	op   operator
	x, y *expr
	test test
}

type operator uint8

const (
	leaf operator = iota
	not
	and
	or
)

// compile appends the tests of e, which leads to yes or no, and returns the one to
// begin with.
func (f *Filter) compile(e *expr, yes, no int) int {
	switch e.op {
	case not:
		return f.compile(e.x, no, yes)
	case and:
		return f.compile(e.x, f.compile(e.y, yes, no), no)
	case or:
		return f.compile(e.x, yes, f.compile(e.y, yes, no))
	case leaf:
	}
	t := e.test
	t.yes, t.no = yes, no
	f.tests = append(f.tests, t)
	return len(f.tests) - 1
}

type token struct {
	text string // empty: the end
	at   int    // bytes before it
}

type parser struct {
	text   string
	tokens []token
	next   int
	// last is what a bare value after and or or takes over.
	last qualifiers
}

func (p *parser) errorf(at int, format string, args ...any) error {
	column := len([]rune(p.text[:min(at, len(p.text))])) + 1
	return &FilterError{Text: p.text, Column: column, Reason: fmt.Sprintf(format, args...)}
}

// scan cuts the text into words and operators.
func (p *parser) scan() error {
	for i := 0; i < len(p.text); {
		rest := p.text[i:]
		n := strings.IndexFunc(rest, func(r rune) bool { return !isWord(r) })
		switch {
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n':
			i++
			continue
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
			n = 2
		case rest[0] == '(', rest[0] == ')', rest[0] == '!':
			n = 1
		case n == 0:
			r := []rune(rest)[0]
			return p.errorf(i, "%q means nothing in a filter", r)
		case n < 0:
			n = len(rest)
		}
		p.tokens = append(p.tokens, token{rest[:n], i})
		i += n
	}
	p.tokens = append(p.tokens, token{"", len(p.text)})
	return nil
}

// isWord tells whether r may be in a keyword, an address or a number.
func isWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".:/-_%", r)
}

func (p *parser) peek() token { return p.tokens[p.next] }

// accepts moves over the next word if it is one of these.
func (p *parser) accepts(words ...string) bool {
	for _, w := range words {
		if p.peek().text == w {
			p.next++
			return true
		}
	}
	return false
}

// maxNesting bounds parentheses and negations within each other.
const maxNesting = 64

// expression reads terms with and and or between them.
func (p *parser) expression(depth int) (*expr, error) {
	x, err := p.term(depth)
	for err == nil {
		op := and
		switch {
		case p.accepts("and", "&&"):
		case p.accepts("or", "||"):
			op = or
		default:
			return x, nil
		}
		var y *expr
		y, err = p.term(depth)
		x = &expr{op: op, x: x, y: y}
	}
	return nil, err
}

// term reads a primitive, a negation or parentheses.
func (p *parser) term(depth int) (*expr, error) {
	t := p.peek()
	if depth == maxNesting {
		return nil, p.errorf(t.at, "more than %d parentheses and negations within each other", maxNesting)
	}
	switch {
	case p.accepts("not", "!"):
		x, err := p.term(depth + 1)
		return &expr{op: not, x: x}, err
	case p.accepts("("):
		x, err := p.expression(depth + 1)
		if err == nil && !p.accepts(")") {
			return nil, p.errorf(p.peek().at, "the ( of column %d is not closed", t.at+1)
		}
		p.last = qualifiers{}
		return x, err
	}
	return p.primitive()
}

// qualifiers are what stands in front of a value.
type qualifiers struct {
	proto    string // "", or what stands in protos
	src, dst bool   // neither: both are meant
	kind     string // "host", "net", "port", "portrange"; empty: host, where something else is there
}

// protos are the words that stand for protocols.
var protos = map[string]*expr{
	"ip":    {test: test{what: isIP}},
	"ip6":   {test: test{what: isIPv6}},
	"arp":   {test: test{what: isARP}},
	"tcp":   {test: test{what: isProto, proto: packet.ProtoTCP}},
	"udp":   {test: test{what: isProto, proto: packet.ProtoUDP}},
	"sctp":  {test: test{what: isProto, proto: packet.ProtoSCTP}},
	"icmp":  {op: and, x: &expr{test: test{what: isIP}}, y: &expr{test: test{what: isProto, proto: packet.ProtoICMP}}},
	"icmp6": {op: and, x: &expr{test: test{what: isIPv6}}, y: &expr{test: test{what: isProto, proto: packet.ProtoICMPv6}}},
}

// primitive reads qualifiers and a value, or a protocol alone.
func (p *parser) primitive() (*expr, error) {
	first := p.peek()
	var q qualifiers
	if protos[first.text] != nil {
		q.proto = first.text
		p.next++
	}
	p.direction(&q)
	if t := p.peek(); p.accepts("host", "net", "port", "portrange") {
		q.kind = t.text
	}
	value := p.peek()
	if q == (qualifiers{proto: q.proto}) && q.proto != "" && !isValue(value.text) {
		p.last = qualifiers{}
		return protos[q.proto], nil
	}
	if !isValue(value.text) {
		return nil, p.unexpected(first, value, q)
	}
	if q == (qualifiers{}) {
		q = p.last
	}
	if q == (qualifiers{}) {
		return nil, p.errorf(value.at, "write host %[1]s, or port %[1]s", value.text)
	}
	p.last = q
	p.next++
	return p.value(q, first, value)
}

// direction reads src, dst, src or dst, src and dst.
func (p *parser) direction(q *qualifiers) {
	if p.accepts("dst") {
		q.dst = true
		return
	}
	if q.src = p.accepts("src"); !q.src {
		return
	}
	if mark := p.next; p.accepts("or") && p.accepts("dst") {
		q.src = false // the same as neither
	} else if p.next = mark; p.accepts("and") && p.accepts("dst") {
		q.dst = true
	} else {
		p.next = mark
	}
}

// isValue tells a value from a keyword: values begin with a digit or hold a colon.
func isValue(s string) bool {
	return s != "" && (s[0] >= '0' && s[0] <= '9' || strings.Contains(s, ":"))
}

// unexpected says what is missing where no value stands.
func (p *parser) unexpected(first, found token, q qualifiers) error {
	switch {
	case found.text == "" && found == first:
		return p.errorf(found.at, "the filter ends where a condition is expected")
	case q.kind == "port" || q.kind == "portrange":
		return p.errorf(found.at, "%s needs a number behind it; names of services are not looked up", q.kind)
	case q.kind != "":
		return p.errorf(found.at, "%s needs an address behind it; names are not looked up", q.kind)
	case found != first:
		return p.errorf(found.at, "an address, or host, net, port or portrange, is expected behind %q", p.tokens[p.next-1].text)
	case found.text == "and" || found.text == "or" || found.text == "&&" || found.text == "||" || found.text == ")":
		return p.errorf(found.at, "a condition is expected in front of %q", found.text)
	}
	return p.errorf(found.at, "%q is not known: conditions begin with host, net, port, portrange, src, dst, tcp, udp, sctp, icmp, icmp6, ip, ip6 or arp", found.text)
}

// value reads the value that the qualifiers are about.
func (p *parser) value(q qualifiers, first, t token) (*expr, error) {
	var src, dst test
	switch q.kind {
	case "port", "portrange":
		from, to, err := p.ports(q.kind, t)
		if err != nil {
			return nil, err
		}
		if q.proto != "" && q.proto != "tcp" && q.proto != "udp" && q.proto != "sctp" {
			return nil, p.errorf(first.at, "%s has no ports: tcp, udp and sctp have", q.proto)
		}
		src, dst = test{what: srcPortIn, first: from, last: to}, test{what: dstPortIn, first: from, last: to}
	default:
		net, err := p.network(q.kind, t)
		if err != nil {
			return nil, err
		}
		switch q.proto {
		case "", "ip", "ip6":
		case "arp":
			return nil, p.errorf(first.at, "the addresses in ARP are not looked at: use arp alone")
		default:
			return nil, p.errorf(first.at, "put and behind %s: only ip and ip6 have addresses", q.proto)
		}
		src, dst = test{what: srcInNet, net: net}, test{what: dstInNet, net: net}
	}
	e := &expr{op: or, x: &expr{test: src}, y: &expr{test: dst}}
	switch {
	case q.src && q.dst:
		e.op = and
	case q.src:
		e = e.x
	case q.dst:
		e = e.y
	}
	if q.proto != "" {
		e = &expr{op: and, x: protos[q.proto], y: e}
	}
	return e, nil
}

func (p *parser) ports(kind string, t token) (first, last uint16, err error) {
	from, to, ranged := strings.Cut(t.text, "-")
	if !ranged {
		to = from
	}
	if ranged != (kind == "portrange") {
		return 0, 0, p.errorf(t.at, "%q: write port 80, or portrange 80-90", t.text)
	}
	for _, n := range []struct {
		text string
		to   *uint16
	}{{from, &first}, {to, &last}} {
		v, err := strconv.ParseUint(n.text, 10, 16)
		if err != nil {
			return 0, 0, p.errorf(t.at, "%q is not a port: 0 to %d", n.text, math.MaxUint16)
		}
		*n.to = uint16(v)
	}
	if first > last {
		return 0, 0, p.errorf(t.at, "%q: the first port is above the last", t.text)
	}
	return first, last, nil
}

func (p *parser) network(kind string, t token) (netip.Prefix, error) {
	if kind != "net" {
		a, err := netip.ParseAddr(t.text)
		switch {
		case err == nil && a.Zone() == "":
			return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		case strings.Contains(t.text, "/"):
			return netip.Prefix{}, p.errorf(t.at, "%q is not an IP address: write net %s", t.text, t.text)
		}
		return netip.Prefix{}, p.errorf(t.at, "%q is not an IP address", t.text)
	}
	n, err := netip.ParsePrefix(t.text)
	if err != nil {
		return n, p.errorf(t.at, "%q is not a network such as 10.0.0.0/8", t.text)
	}
	if n != n.Masked() {
		return n, p.errorf(t.at, "%q has bits behind its length: did you mean %s, or host %s?", t.text, n.Masked(), n.Addr())
	}
	return n, nil
}
