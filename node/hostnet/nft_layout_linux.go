package hostnet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The table, as nft(8) would show it (here for IPv4; IPv6 is the same):
//
//	table inet sluice-fabric {
//		chain prerouting { type nat hook prerouting priority -101
//			dnat ip to ip daddr map @external4              # external_prerouting
//		}
//		chain output { type nat hook output priority -101
//			dnat ip to ip daddr map @external4              # external_output
//		}
//		chain input { type filter hook input priority 0   # only if there are gateways
//			udp dport 6091 ip saddr != @gateways4 drop      # strangers_dropped
//		}
//		chain postrouting { type nat hook postrouting priority 99
//			udp dport 6091 ip saddr @gateways4 snat ip to ip saddr                            # tunnels_kept
//			udp dport 6091 ip daddr @gateways4 snat ip to ip saddr                            # tunnels_kept
//			ip saddr @local4 ip daddr @remote4 meta mark & 0x4000 == 0 snat ip to ip saddr    # pods_kept
//			ip daddr @remote4 snat ip to 10.70.0.0                                            # others_unknown
//			ip saddr @remote4 ip daddr @hosts4 masquerade                                     # peers_masqueraded
//			ct status dnat ip daddr @hosts4 masquerade                                        # mapped_masqueraded
//		}
//	}
//
// To translate a source to itself claims the connection: the kernel then asks no
// other chain of source translation, such as the one by which a CNI hides pods,
// at priority 100.
const (
	// before the translations of kube-proxy (-100) and of the CNI (100).
	destinationPriority = -101
	sourcePriority      = 99
	// kubeProxyMark is the mark that kube-proxy gives to packets whose replies have
	// to come back to this node: those that it sends on to where a NodePort leads.
	// It would masquerade them at priority 100. From a pod of another node they come
	// with the pod's own address, and with that the reply would go straight to the
	// pod, which knows nothing of the connection.
	kubeProxyMark = 0x4000
	// ctStatusDNAT is IPS_DST_NAT: the destination was translated.
	ctStatusDNAT = 1 << 5
)

// tableLayout is what the table holds.
type tableLayout struct {
	sets   []setLayout
	chains []chainLayout
}

type setLayout struct {
	family   addressFamily
	name     string
	isMap    bool
	interval bool
	elements []TranslationElement
}

type chainLayout struct {
	name     string
	typ      nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    []ruleLayout
}

type ruleLayout struct {
	comment string
	exprs   []expr.Any
}

// addressFamily is what differs between IPv4 and IPv6.
type addressFamily struct {
	name   string
	suffix string // of the names of sets
	proto  uint8
	typ    nftables.SetDatatype
	srcAt  uint32 // offsets in the IP header
	dstAt  uint32
	size   uint32
	is4    bool
}

var (
	familyIPv4 = addressFamily{name: "ipv4", suffix: "4", proto: unix.NFPROTO_IPV4, typ: nftables.TypeIPAddr, srcAt: 12, dstAt: 16, size: 4, is4: true}
	familyIPv6 = addressFamily{name: "ipv6", suffix: "6", proto: unix.NFPROTO_IPV6, typ: nftables.TypeIP6Addr, srcAt: 8, dstAt: 24, size: 16}
)

// layoutOf returns the table for t: sets and chains in order of their names, as
// they are read.
func layoutOf(t Translation) tableLayout {
	var l tableLayout
	prerouting := chainLayout{name: "prerouting", typ: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: destinationPriority}
	output := chainLayout{name: "output", typ: nftables.ChainTypeNAT, hook: nftables.ChainHookOutput, priority: destinationPriority}
	input := chainLayout{name: "input", typ: nftables.ChainTypeFilter, hook: nftables.ChainHookInput, priority: 0}
	postrouting := chainLayout{name: "postrouting", typ: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: sourcePriority}
	for _, f := range []addressFamily{familyIPv4, familyIPv6} {
		l.sets = append(l.sets, f.sets(t)...)
		prerouting.add("external_prerouting: external addresses lead to their hosts", f.dnat())
		output.add("external_output: external addresses lead to their hosts", f.dnat())
		input.add("strangers_dropped: only gateways may send into tunnels",
			f.only(), udpTo(t.Port), f.in(f.srcAt, "gateways", true), drop())
		f.postrouting(t, &postrouting)
	}
	l.chains = []chainLayout{prerouting, output, postrouting}
	if len(t.Gateways) > 0 {
		l.chains = append(l.chains, input)
	}
	slices.SortFunc(l.chains, func(a, b chainLayout) int { return cmp.Compare(a.name, b.name) })
	slices.SortFunc(l.sets, func(a, b setLayout) int { return cmp.Compare(a.name, b.name) })
	return l
}

func (f addressFamily) postrouting(t Translation, c *chainLayout) {
	const tunnels = "tunnels_kept: both ends of a tunnel know each other by address"
	c.add(tunnels, f.only(), udpTo(t.Port), f.in(f.srcAt, "gateways", false), f.keep())
	c.add(tunnels, f.only(), udpTo(t.Port), f.in(f.dstAt, "gateways", false), f.keep())
	if !t.HideAll {
		c.add("pods_kept: remote clusters see pods",
			f.only(), f.in(f.srcAt, "local", false), f.in(f.dstAt, "remote", false), notMarked(kubeProxyMark), f.keep())
	}
	if a := f.unknownSource(t); a.IsValid() {
		c.add("others_unknown: remote clusters see one address for all that is no pod",
			f.only(), f.in(f.dstAt, "remote", false), f.snat(a))
	}
	c.add("peers_masqueraded: mapped hosts see this node instead of remote clusters",
		f.only(), f.in(f.srcAt, "remote", false), f.in(f.dstAt, "hosts", false), masquerade())
	c.add("mapped_masqueraded: mapped hosts see this node instead of those who used the external address",
		f.only(), destinationTranslated(), f.in(f.dstAt, "hosts", false), masquerade())
}

func (c *chainLayout) add(comment string, parts ...[]expr.Any) {
	c.rules = append(c.rules, ruleLayout{comment: comment, exprs: slices.Concat(parts...)})
}

// sets returns the sets of this family. They are all there, so that whatever
// comes later is a change of elements.
func (f addressFamily) sets(t Translation) []setLayout {
	var hosts, external []TranslationElement
	for _, m := range t.Hosts {
		if f.has(m.Host) {
			hosts = append(hosts, TranslationElement{First: m.Host, Last: m.Host})
			external = append(external, TranslationElement{First: m.External, Last: m.External, Value: m.Host})
		}
	}
	var gateways []TranslationElement
	for _, a := range t.Gateways {
		if f.has(a) {
			gateways = append(gateways, TranslationElement{First: a, Last: a})
		}
	}
	return []setLayout{
		{family: f, name: "external" + f.suffix, isMap: true, elements: distinct(external)},
		{family: f, name: "gateways" + f.suffix, elements: distinct(gateways)},
		{family: f, name: "hosts" + f.suffix, elements: distinct(hosts)},
		{family: f, name: "local" + f.suffix, interval: true, elements: f.ranges(t.Local)},
		{family: f, name: "remote" + f.suffix, interval: true, elements: f.ranges(t.Remote)},
	}
}

func (f addressFamily) has(a netip.Addr) bool { return a.Is4() == f.is4 }

// ranges returns the prefixes of this family. One inside of another is left out.
func (f addressFamily) ranges(ps []netip.Prefix) []TranslationElement {
	var es []TranslationElement
	for _, p := range ps {
		if f.has(p.Addr()) {
			es = append(es, TranslationElement{First: p.Masked().Addr(), Last: lastAddr(p)})
		}
	}
	return distinct(es)
}

// distinct sorts, and leaves out what lies in something else: the kernel would
// refuse all of it.
func distinct(es []TranslationElement) []TranslationElement {
	slices.SortFunc(es, func(a, b TranslationElement) int {
		return cmp.Or(a.First.Compare(b.First), b.Last.Compare(a.Last), a.Value.Compare(b.Value))
	})
	kept := es[:0]
	for _, e := range es {
		if len(kept) == 0 || kept[len(kept)-1].Last.Less(e.First) {
			kept = append(kept, e)
		}
	}
	return kept
}

func (f addressFamily) unknownSource(t Translation) netip.Addr {
	for _, a := range t.UnknownSource {
		if f.has(a) {
			return a
		}
	}
	return netip.Addr{}
}

// only: meta nfproto ipv4
func (f addressFamily) only() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
	}
}

func (f addressFamily) load(at uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: f.size}
}

// in: ip saddr @set, or ip saddr != @set
func (f addressFamily) in(at uint32, set string, not bool) []expr.Any {
	return []expr.Any{f.load(at), &expr.Lookup{SourceRegister: 1, SetName: set + f.suffix, Invert: not}}
}

// keep: snat ip to ip saddr
func (f addressFamily) keep() []expr.Any { return f.nat(expr.NATTypeSourceNAT, f.load(f.srcAt)) }

// snat: snat ip to 10.70.0.0
func (f addressFamily) snat(a netip.Addr) []expr.Any {
	return f.nat(expr.NATTypeSourceNAT, &expr.Immediate{Register: 1, Data: a.AsSlice()})
}

// dnat: dnat ip to ip daddr map @external4
func (f addressFamily) dnat() []expr.Any {
	return slices.Concat(f.only(), f.nat(expr.NATTypeDestNAT, f.load(f.dstAt),
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: "external" + f.suffix}))
}

// nat translates to what load leaves in register 1, and counts.
func (f addressFamily) nat(typ expr.NATType, load ...expr.Any) []expr.Any {
	return append(load, &expr.Counter{},
		&expr.NAT{Type: typ, Family: uint32(f.proto), RegAddrMin: 1, RegAddrMax: 1})
}

func masquerade() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Masq{}} }

func drop() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }

// udpTo: udp dport 6091
func udpTo(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

// notMarked: meta mark & 0x4000 == 0
func notMarked(bits uint32) []expr.Any {
	return masked(&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, bits, expr.CmpOpEq)
}

// destinationTranslated: ct status dnat
func destinationTranslated() []expr.Any {
	return masked(&expr.Ct{Key: expr.CtKeySTATUS, Register: 1}, ctStatusDNAT, expr.CmpOpNeq)
}

// masked compares some bits with zero.
func masked(load expr.Any, bits uint32, op expr.CmpOp) []expr.Any {
	zero := make([]byte, 4)
	return []expr.Any{
		load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: zero},
		&expr.Cmp{Op: op, Register: 1, Data: zero},
	}
}

// digest tells rules apart by what they do, whatever they have counted.
func digest(exprs []expr.Any) string {
	h := sha256.New()
	for _, e := range exprs {
		if _, ok := e.(*expr.Counter); ok {
			e = &expr.Counter{}
		}
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			// None of ours. It must differ from all of them.
			b = []byte(err.Error())
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
