package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nft is a connection to the kernel's nf_tables, for TranslationTable.
type nft struct {
	conn *nftables.Conn
	// socket is what conn speaks through; nil where it cannot be had, and then err
	// says why.
	socket *netlink.Conn
	err    error
	// flows speaks to the kernel's table of flows; nil where that cannot be.
	flows *netlink.Conn
	// usable: nf_tables was seen to do what we need. That does not change.
	usable bool
	// sets are what they were in a generation of all tables of the namespace. While
	// that is the same, so are they.
	sets       []TranslationSet
	generation uint32
}

const (
	// A transaction is one message to the kernel, and 5000 prefixes of IPv6 take 320 KiB.
	nftWriteBuffer = 8 << 20
	nftReadBuffer  = 4 << 20
	// nftTimeout is for a kernel that answers less than the library waits for.
	nftTimeout = 20 * time.Second
	// nfgenmsgSize is that of the header of every message.
	nfgenmsgSize = 4
	// The elements of a message are one netlink attribute, of at most 64 KiB.
	elementsPerMessage = 1000
)

// openNFT makes a connection in the network namespace of the calling thread. That
// the kernel has no nf_tables shows when it is used.
func openNFT(options ...nftables.ConnOption) *nft {
	n := new(nft)
	options = append(options, nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		n.socket = c
		// Where a limit of the system is lower, it holds. Then large transactions fail.
		_ = c.SetWriteBuffer(nftWriteBuffer)
		_ = c.SetReadBuffer(nftReadBuffer)
		return nil
	}))
	n.conn, n.err = nftables.New(options...)
	n.flows, _ = netlink.Dial(unix.NETLINK_NETFILTER, nil)
	return n
}

func (n *nft) close() error {
	if n.flows != nil {
		_ = n.flows.Close()
	}
	if n.err != nil {
		return nil
	}
	return n.conn.CloseLasting()
}

// pid is the address of the connection: notifications of what it changed carry it.
func (n *nft) pid() uint32 {
	if n.err != nil {
		return 0
	}
	pid, err := portID(n.socket)
	if err != nil {
		return 0
	}
	return pid
}

// translationEvent tells whether a notification of nf_tables is about our table.
func translationEvent(m netlink.Message) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < nfgenmsgSize || m.Data[0] != unix.NFPROTO_INET {
		return false
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[nfgenmsgSize:])
	if err != nil {
		return false
	}
	for ad.Next() {
		// The same number in notifications of tables, chains, rules, sets and elements.
		if ad.Type() == unix.NFTA_TABLE_NAME {
			return ad.String() == TranslationTable
		}
	}
	return false
}

// read finds what there is. That nf_tables cannot be used is no error.
func (n *nft) read() (TranslationState, error) {
	// Somebody else may replace the table while we read it.
	const attempts = 3
	var s TranslationState
	var err error
	for range attempts {
		if s, err = n.readOnce(); err == nil {
			return s, nil
		}
		n.settle()
	}
	return TranslationState{}, err
}

func (n *nft) readOnce() (TranslationState, error) {
	table, err := n.table()
	if why := unusable(err); why != "" {
		return TranslationState{Reason: why}, nil
	}
	if err != nil {
		return TranslationState{}, fmt.Errorf("find table: %w", err)
	}
	if table == nil {
		if err := n.probe(); err != nil {
			return TranslationState{Reason: err.Error()}, nil
		}
		return TranslationState{Available: true}, nil
	}
	n.usable = true
	s := TranslationState{Available: true, Exists: true, Flags: table.Flags}
	if s.Sets, err = n.readSets(table); err != nil {
		return TranslationState{}, err
	}
	if s.Chains, err = n.readChains(table); err != nil {
		return TranslationState{}, err
	}
	return s, nil
}

// table returns our table, or nil.
func (n *nft) table() (*nftables.Table, error) {
	if n.err != nil {
		return nil, n.err
	}
	n.setDeadline(nftTimeout)
	t, err := n.conn.ListTableOfFamily(TranslationTable, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return t, err
}

// apply makes a change, all of it or nothing.
func (n *nft) apply(c TranslationChange) error {
	if n.err != nil {
		return &TranslationError{fmt.Errorf("%s: %w", c, n.err)}
	}
	table := &nftables.Table{Name: TranslationTable, Family: nftables.TableFamilyINet}
	err := n.transaction(func() error {
		switch {
		case c.add:
			// One that is there by now would be in the way, and what is not there
			// cannot be removed.
			n.conn.AddTable(table)
			n.conn.DelTable(table)
			return n.addTable(table, layoutOf(c.want))
		case c.remove:
			n.conn.AddTable(table)
			n.conn.DelTable(table)
			return nil
		}
		return n.changeSets(table, c.sets)
	})
	if why := unusable(err); why != "" && !n.usable {
		err = fmt.Errorf("%s: %w", why, err)
	}
	if err != nil {
		return &TranslationError{fmt.Errorf("%s: %w", c, err)}
	}
	n.usable = true
	n.forgetHiddenTunnels(c.want.Port, c.want.Gateways)
	return nil
}

// transaction sends what build asks for.
func (n *nft) transaction(build func() error) error {
	n.setDeadline(nftTimeout)
	if err := build(); err != nil {
		return err
	}
	err := n.conn.Flush()
	if err != nil {
		n.settle()
	}
	return err
}

func (n *nft) addTable(table *nftables.Table, l tableLayout) error {
	n.conn.AddTable(table)
	for _, s := range l.sets {
		set := s.set(table)
		if err := n.conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("add set %s: %w", s.name, err)
		}
		if err := n.elements(n.conn.SetAddElements, set, s.elements); err != nil {
			return fmt.Errorf("fill set %s: %w", s.name, err)
		}
	}
	accept := nftables.ChainPolicyAccept
	for _, c := range l.chains {
		chain := n.conn.AddChain(&nftables.Chain{Name: c.name, Table: table, Type: c.typ, Hooknum: c.hook, Priority: &c.priority, Policy: &accept})
		for _, r := range c.rules {
			n.conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment)})
		}
	}
	return nil
}

func (n *nft) changeSets(table *nftables.Table, changes []changeSet) error {
	layouts := layoutOf(Translation{}).sets
	for _, c := range changes {
		i := slices.IndexFunc(layouts, func(s setLayout) bool { return s.name == c.name })
		set := layouts[i].set(table)
		// What goes may overlap with what comes.
		if err := n.elements(n.conn.SetDeleteElements, set, c.remove); err != nil {
			return fmt.Errorf("change set %s: %w", c.name, err)
		}
		if err := n.elements(n.conn.SetAddElements, set, c.add); err != nil {
			return fmt.Errorf("change set %s: %w", c.name, err)
		}
	}
	return nil
}

func (s setLayout) set(table *nftables.Table) *nftables.Set {
	set := &nftables.Set{Table: table, Name: s.name, KeyType: s.family.typ, IsMap: s.isMap, Interval: s.interval}
	if s.isMap {
		set.DataType = s.family.typ
	}
	return set
}

// elements adds or removes elements, a message for some at a time.
func (n *nft) elements(do func(*nftables.Set, []nftables.SetElement) error, set *nftables.Set, es []TranslationElement) error {
	for chunk := range slices.Chunk(es, elementsPerMessage/2) {
		var encoded []nftables.SetElement
		for _, e := range chunk {
			encoded = append(encoded, nftables.SetElement{Key: e.First.AsSlice(), Val: e.Value.AsSlice()})
			// Behind the last address of all there is none.
			if next := e.Last.Next(); set.Interval && next.IsValid() {
				encoded = append(encoded, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
			}
		}
		if err := do(set, encoded); err != nil {
			return err
		}
	}
	return nil
}

// probe makes a table like ours, under another name, and removes it in the same
// transaction: only that shows whether the kernel has all that it takes.
func (n *nft) probe() error {
	if n.usable {
		return nil
	}
	table := &nftables.Table{Name: TranslationTable + "-probe", Family: nftables.TableFamilyINet}
	gateway := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	err := n.transaction(func() error {
		err := n.addTable(table, layoutOf(Translation{UnknownSource: []netip.Addr{gateway}, Gateways: []netip.Addr{gateway}}))
		n.conn.DelTable(table)
		return err
	})
	if why := unusable(err); why != "" {
		return errors.New(why)
	}
	// Whatever else it is, to make the real table will tell.
	n.usable = err == nil
	return nil
}

// unusable says what the kernel lacks and what to do, if err shows that it
// lacks something.
func unusable(err error) string {
	const cost = "; until then the CNI may hide the addresses of pods from remote clusters"
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "nf_tables may not be used: grant the capability NET_ADMIN" + cost
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EINVAL):
		return "this kernel has no nf_tables: load the module nf_tables (modprobe nf_tables), or use a kernel with CONFIG_NF_TABLES" + cost
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return "this kernel's nf_tables cannot translate addresses in tables of family inet: it takes Linux 5.2 or newer with CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ and CONFIG_NFT_CT" +
			" (modprobe -a nft_chain_nat nft_masq nft_ct)" + cost
	}
	return ""
}

// settle reads what is left of the answers to a request that failed.
func (n *nft) settle() {
	if n.err != nil {
		return
	}
	n.setDeadline(time.Millisecond)
	const most = 10000
	for range most {
		_, err := n.socket.Receive()
		var refused *netlink.OpError
		if err != nil && (!errors.As(err, &refused) || refused.Timeout()) {
			return
		}
	}
}

func (n *nft) setDeadline(d time.Duration) {
	// A connection of a test has none.
	_ = n.socket.SetReadDeadline(time.Now().Add(d))
}

func (c TranslationChange) apply(conn *Conn) error { return conn.nft.apply(c) }
