package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The table of a Counter, as nft(8) would show it, for port 443 of IPv4:
//
//	table inet sluice-fabric-count-4711 { # flags owner
//		chain prerouting { type filter hook prerouting priority -50
//			iifname != "liqo.milan" ip saddr 10.243.1.5 ip daddr 10.71.2.20 jump pod-outbound
//			iifname "liqo.milan" ip saddr 10.71.2.20 ip daddr 10.243.1.5 jump link-inbound
//		}
//		chain postrouting { type filter hook postrouting priority 50
//			oifname "liqo.milan" ip saddr 10.243.1.5 ip daddr 10.71.2.20 jump link-outbound
//			oifname != "liqo.milan" ip saddr 10.71.2.20 ip daddr 10.243.1.5 jump pod-inbound
//		}
//		chain pod-outbound { # and so on
//			meta l4proto tcp th sport 443 counter name pod-outbound return
//			meta l4proto tcp th dport 443 counter name pod-outbound return # sctp, too
//			meta l4proto udp th sport 443 counter name pod-outbound-udp return
//			meta l4proto udp th dport 443 counter name pod-outbound-udp return
//		}
//	}
//
// The priorities lie where a packet has the address of the remote pod in both
// directions, also if the pod has asked a Service: behind the translation of
// destinations, in front of that of sources.
const (
	countPrerouting  = destinationPriority + 51
	countPostrouting = sourcePriority - 49
)

// udpSuffix is behind the name of the counter for UDP.
const udpSuffix = "-udp"

// ownerFlag is NFT_TABLE_F_OWNER, since Linux 5.12.
const ownerFlag = 2

// Counter counts the packets of a Flow until it is closed. It sees none of them: the
// kernel does. It needs NET_ADMIN, as everything here.
type Counter struct {
	nft   *nft
	table *nftables.Table
}

// Count begins to count.
func (c *Conn) Count(f Flow) (*Counter, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	var counter *Counter
	err := c.inNamespace(func() (err error) {
		counter, err = count(f)
		return err
	})
	return counter, err
}

// count is Count in the network namespace of the calling thread.
func count(f Flow) (*Counter, error) {
	n := openNFT()
	err := n.err
	c := &Counter{nft: n, table: &nftables.Table{Name: fmt.Sprintf("%s%d", CountTable, n.pid()), Family: nftables.TableFamilyINet}}
	if err == nil {
		err = n.ownTable(c.table)
	}
	if err == nil {
		err = n.transaction(func() error { c.build(f); return nil })
	}
	if err == nil {
		return c, nil
	}
	_ = n.close()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil, errPermission
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("the kernel of this node cannot count packets: it takes Linux 5.12 or newer with nf_tables (%w)", err)
	}
	return nil, fmt.Errorf("count packets: %w", err)
}

// ownTable makes a table that goes with our socket. The library knows no flags of
// tables.
func (n *nft) ownTable(t *nftables.Table) error {
	n.setDeadline(nftTimeout)
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: []byte(t.Name + "\x00")},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binaryutil.BigEndian.PutUint32(ownerFlag)},
	})
	if err != nil {
		return err
	}
	head := func(family, subsystem byte) []byte { return []byte{family, unix.NFNETLINK_V0, 0, subsystem} }
	_, err = n.socket.SendMessages([]netlink.Message{
		{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: head(0, unix.NFNL_SUBSYS_NFTABLES)},
		{
			Header: netlink.Header{
				Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
				Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl,
			},
			Data: append(head(byte(t.Family), 0), attributes...),
		},
		{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: head(0, unix.NFNL_SUBSYS_NFTABLES)},
	})
	if err == nil {
		_, err = n.socket.Receive()
	}
	return err
}

// build asks for what is in the table.
func (c *Counter) build(f Flow) {
	prerouting := c.base("prerouting", nftables.ChainHookPrerouting, countPrerouting)
	postrouting := c.base("postrouting", nftables.ChainHookPostrouting, countPostrouting)
	for _, p := range []struct {
		name     string
		at       *nftables.Chain
		device   expr.MetaKey
		link     bool
		src, dst netip.Addr
	}{
		{"pod-outbound", prerouting, expr.MetaKeyIIFNAME, false, f.Pod, f.Peer},
		{"link-inbound", prerouting, expr.MetaKeyIIFNAME, true, f.Peer, f.Pod},
		{"link-outbound", postrouting, expr.MetaKeyOIFNAME, true, f.Pod, f.Peer},
		{"pod-inbound", postrouting, expr.MetaKeyOIFNAME, false, f.Peer, f.Pod},
	} {
		for _, name := range []string{p.name, p.name + udpSuffix} {
			c.nft.conn.AddObj(&nftables.CounterObj{Table: c.table, Name: name})
		}
		chain := c.nft.conn.AddChain(&nftables.Chain{Name: p.name, Table: c.table})
		for _, e := range countRules(p.name, f.Port) {
			c.rule(chain, e)
		}
		family := familyIPv4
		if p.src.Is6() {
			family = familyIPv6
		}
		e := append([]expr.Any{&expr.Meta{Key: p.device, Register: 1}, equal(device(f.Link), !p.link)}, family.only()...)
		e = append(e, family.load(family.srcAt), equal(p.src.AsSlice(), false), family.load(family.dstAt), equal(p.dst.AsSlice(), false),
			&expr.Verdict{Kind: expr.VerdictJump, Chain: p.name})
		c.rule(p.at, e)
	}
}

func (c *Counter) base(name string, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return c.nft.conn.AddChain(&nftables.Chain{Name: name, Table: c.table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority, Policy: &accept})
}

func (c *Counter) rule(chain *nftables.Chain, e []expr.Any) {
	c.nft.conn.AddRule(&nftables.Rule{Table: c.table, Chain: chain, Exprs: e})
}

// countRules count into the two counters of a name. A packet is counted once.
func countRules(name string, port uint16) (rules [][]expr.Any) {
	protocol := func(p byte, not bool) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{p}, not)}
	}
	counted := func(name string, e ...expr.Any) []expr.Any {
		return append(e, &expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name}, &expr.Verdict{Kind: expr.VerdictReturn})
	}
	if port == 0 {
		return [][]expr.Any{
			counted(name+udpSuffix, protocol(unix.IPPROTO_UDP, false)...),
			counted(name, protocol(unix.IPPROTO_UDP, true)...),
		}
	}
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_SCTP, unix.IPPROTO_UDP} {
		into := name
		if p == unix.IPPROTO_UDP {
			into += udpSuffix
		}
		const sourceAt, destinationAt = 0, 2
		for _, at := range []uint32{sourceAt, destinationAt} {
			rules = append(rules, counted(into, append(protocol(p, false),
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: at, Len: 2},
				equal(binaryutil.BigEndian.PutUint16(port), false))...))
		}
	}
	return rules
}

func equal(data []byte, not bool) expr.Any {
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	return &expr.Cmp{Op: op, Register: 1, Data: data}
}

// device is a name as the kernel compares it.
func device(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

// Read returns what has passed so far, at all points.
func (c *Counter) Read() ([]Passed, error) {
	c.nft.setDeadline(nftTimeout)
	objects, err := c.nft.conn.GetObjects(c.table)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	packets := make(map[string]uint64)
	for _, o := range objects {
		if o, ok := o.(*nftables.CounterObj); ok {
			packets[o.Name] = o.Packets
		}
	}
	var out []Passed
	for _, point := range []string{"pod", "link"} {
		for _, way := range []string{"outbound", "inbound"} {
			name := point + "-" + way
			n, known := packets[name]
			if !known {
				return nil, errors.New("somebody else has removed the counters")
			}
			udp := packets[name+udpSuffix]
			out = append(out, Passed{Point: point, Outbound: way == "outbound", Packets: n + udp, UDP: udp})
		}
	}
	return out, nil
}

// Close ends it: nothing is left in the kernel.
func (c *Counter) Close() error { return c.nft.close() }
