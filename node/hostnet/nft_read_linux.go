package hostnet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func (n *nft) readSets(table *nftables.Table) ([]TranslationSet, error) {
	generation := n.readGeneration()
	if generation != 0 && generation == n.generation {
		return n.sets, nil
	}
	sets, err := n.conn.GetSets(table)
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	var read []TranslationSet
	for _, s := range sets {
		elements, err := n.conn.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("list set %s: %w", s.Name, err)
		}
		read = append(read, TranslationSet{Name: s.Name, Type: setType(s), Elements: decodeElements(elements, s.Interval)})
	}
	slices.SortFunc(read, func(a, b TranslationSet) int { return cmp.Compare(a.Name, b.Name) })
	n.sets, n.generation = read, generation
	return read, nil
}

// readGeneration returns the number that every change of any table makes
// another one, or 0 if it cannot be had.
func (n *nft) readGeneration() uint32 {
	ms, err := n.socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, nfgenmsgSize),
	})
	if err != nil || len(ms) != 1 || len(ms[0].Data) < nfgenmsgSize {
		return 0
	}
	ad, err := netlink.NewAttributeDecoder(ms[0].Data[nfgenmsgSize:])
	if err != nil {
		return 0
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		if ad.Type() == unix.NFTA_GEN_ID {
			return ad.Uint32()
		}
	}
	return 0
}

// setType is the type of a set as nft(8) writes it, with all that ours have not.
func setType(s *nftables.Set) string {
	typ := s.KeyType.Name
	if s.IsMap {
		typ += " : " + s.DataType.Name
	}
	for _, f := range []struct {
		is   bool
		name string
	}{{s.Interval, "interval"}, {s.Constant, "constant"}, {s.HasTimeout, "timeout"}, {s.Dynamic, "dynamic"}, {s.Concatenation, "concatenation"}} {
		if f.is {
			typ += ", " + f.name
		}
	}
	return typ
}

// decodeElements joins the elements of an interval set, each of which begins or
// ends an interval.
func decodeElements(elements []nftables.SetElement, intervals bool) []TranslationElement {
	type bound struct {
		at, value netip.Addr
		end       bool
	}
	bounds := make([]bound, 0, len(elements))
	for _, e := range elements {
		at, _ := netip.AddrFromSlice(e.Key)
		value, _ := netip.AddrFromSlice(e.Val)
		bounds = append(bounds, bound{at, value, e.IntervalEnd})
	}
	// What ends at an address does so before anything begins there.
	slices.SortFunc(bounds, func(a, b bound) int {
		switch {
		case a.at != b.at:
			return a.at.Compare(b.at)
		case a.end && !b.end:
			return -1
		case b.end && !a.end:
			return 1
		}
		return 0
	})
	var read []TranslationElement
	open := false
	for _, b := range bounds {
		switch {
		case b.end && open:
			read[len(read)-1].Last = b.at.Prev()
			open = false
		case !b.end:
			read = append(read, TranslationElement{First: b.at, Last: b.at, Value: b.value})
			open = intervals
		}
	}
	if open {
		// It has no end where there is no address behind.
		last := &read[len(read)-1]
		last.Last = lastAddr(netip.PrefixFrom(last.First, 0))
	}
	return read
}

func (n *nft) readChains(table *nftables.Table) ([]TranslationChain, error) {
	chains, err := n.conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	var read []TranslationChain
	for _, c := range chains {
		if c.Table.Name != TranslationTable {
			continue
		}
		chain := TranslationChain{Name: c.Name}
		if c.Hooknum != nil && c.Priority != nil && c.Policy != nil {
			chain.Type, chain.Hook, chain.Priority, chain.Policy = string(c.Type), hookName(c.Hooknum), int32(*c.Priority), policyName(*c.Policy)
		}
		rules, err := n.conn.GetRules(table, c)
		if err != nil {
			return nil, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			chain.Rules = append(chain.Rules, decodeTranslationRule(r))
		}
		read = append(read, chain)
	}
	slices.SortFunc(read, func(a, b TranslationChain) int { return cmp.Compare(a.Name, b.Name) })
	return read, nil
}

func decodeTranslationRule(r *nftables.Rule) TranslationRule {
	rule := TranslationRule{Digest: digest(r.Exprs)}
	rule.Comment, _ = userdata.GetString(r.UserData, userdata.TypeComment)
	for i, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter:
			rule.Packets, rule.Bytes = e.Packets, e.Bytes
		case *expr.Cmp:
			m, ok := r.Exprs[max(i, 1)-1].(*expr.Meta)
			if !ok || m.Key != expr.MetaKeyNFPROTO || len(e.Data) != 1 {
				continue
			}
			for _, f := range []addressFamily{familyIPv4, familyIPv6} {
				if e.Data[0] == f.proto {
					rule.Family = f.name
				}
			}
		}
	}
	return rule
}

func hookName(h *nftables.ChainHook) string {
	switch *h {
	case *nftables.ChainHookPrerouting:
		return "prerouting"
	case *nftables.ChainHookInput:
		return "input"
	case *nftables.ChainHookForward:
		return "forward"
	case *nftables.ChainHookOutput:
		return "output"
	case *nftables.ChainHookPostrouting:
		return "postrouting"
	}
	return fmt.Sprintf("hook %d", *h)
}

func policyName(p nftables.ChainPolicy) string {
	if p == nftables.ChainPolicyAccept {
		return "accept"
	}
	return "drop"
}
