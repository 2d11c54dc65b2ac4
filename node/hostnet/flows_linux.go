package hostnet

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The kernel decides once for each flow how its addresses are translated: rules
// that come later find it decided. A gateway may send into its tunnels before the
// rules on its node spare them from the CNI, which then hides the gateway's address
// for as long as the flow does not pause; and the other end of the tunnel drops what
// comes from a stranger. So such flows are forgotten, and decided about anew.

// Numbers of nfnetlink_conntrack.h that package unix does not have.
const (
	flowGet    = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | 1) // IPCTNL_MSG_CT_GET
	flowDelete = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | 2) // IPCTNL_MSG_CT_DELETE

	flowOriginal = 1  // CTA_TUPLE_ORIG
	flowReply    = 2  // CTA_TUPLE_REPLY
	flowID       = 12 // CTA_ID
	flowZone     = 18 // CTA_ZONE

	tupleAddresses = 1 // CTA_TUPLE_IP
	tupleProtocol  = 2 // CTA_TUPLE_PROTO
	addressSource4 = 1 // CTA_IP_V4_SRC
	addressDest4   = 2 // CTA_IP_V4_DST
	addressSource6 = 3 // CTA_IP_V6_SRC
	addressDest6   = 4 // CTA_IP_V6_DST
	protocolNumber = 1 // CTA_PROTO_NUM
	protocolDest   = 3 // CTA_PROTO_DST_PORT

	// flowsAtOnce bounds what is forgotten, and kept in mind, in one go.
	flowsAtOnce = 4096
)

// flowTuple is one direction of a flow.
type flowTuple struct {
	source, dest netip.Addr
	protocol     uint8
	destPort     uint16
}

// hiddenTunnel tells whether a flow is one between a gateway and a node of which
// the source is hidden: its replies go elsewhere.
func hiddenTunnel(original, reply flowTuple, port uint16, gateways []netip.Addr) bool {
	return original.protocol == unix.IPPROTO_UDP && original.destPort == port && original.source != reply.dest &&
		(slices.Contains(gateways, original.source) || slices.Contains(gateways, original.dest))
}

// forgetHiddenTunnels makes the kernel forget such flows. A kernel that does not let
// us, which one without a module for it does, forgets them when they pause.
func (n *nft) forgetHiddenTunnels(port uint16, gateways []netip.Addr) {
	if n.flows == nil || len(gateways) == 0 {
		return
	}
	_ = n.flows.SetReadDeadline(time.Now().Add(nftTimeout))
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var requests []netlink.Message
		ask := netlink.Message{Header: netlink.Header{Type: flowGet, Flags: netlink.Request | netlink.Dump}, Data: flowHeader(family)}
		sent, err := n.flows.Send(ask)
		if err != nil {
			return
		}
		// There may be a million of them: none is kept but what is looked for.
		for m, err := range n.flows.ReceiveIter() {
			if err != nil {
				break
			}
			if m.Header.Sequence != sent.Header.Sequence || len(requests) == flowsAtOnce {
				continue
			}
			if data := forgetRequest(m.Data, family, port, gateways); data != nil {
				requests = append(requests, netlink.Message{Header: netlink.Header{Type: flowDelete, Flags: netlink.Request | netlink.Acknowledge}, Data: data})
			}
		}
		for _, m := range requests {
			_, _ = n.flows.Execute(m) // one that is gone by now is what we want
		}
	}
}

// flowHeader is struct nfgenmsg.
func flowHeader(family uint8) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

// forgetRequest is what makes the kernel forget the flow in a message, nil if it is
// none that is hidden.
func forgetRequest(message []byte, family uint8, port uint16, gateways []netip.Addr) []byte {
	var original, reply flowTuple
	request := flowHeader(family)
	err := decode(message, nfgenmsgSize, func(a attribute) {
		switch a.typ {
		case flowOriginal:
			original = decodeTuple(a)
			request = appendAttribute(request, flowOriginal|unix.NLA_F_NESTED, a.value)
		case flowReply:
			reply = decodeTuple(a)
		case flowID, flowZone:
			request = appendAttribute(request, a.typ, a.value)
		}
	})
	if err != nil || !hiddenTunnel(original, reply, port, gateways) {
		return nil
	}
	return request
}

func decodeTuple(a attribute) (t flowTuple) {
	a.each(func(part attribute) {
		part.each(func(b attribute) {
			switch {
			case part.typ == tupleAddresses && (b.typ == addressSource4 || b.typ == addressSource6):
				t.source = b.addr()
			case part.typ == tupleAddresses && (b.typ == addressDest4 || b.typ == addressDest6):
				t.dest = b.addr()
			case part.typ == tupleProtocol && b.typ == protocolNumber:
				t.protocol = b.uint8()
			case part.typ == tupleProtocol && b.typ == protocolDest && len(b.value) == 2:
				t.destPort = binary.BigEndian.Uint16(b.value)
			}
		})
	})
	return t
}

// appendAttribute appends an attribute with the padding that it needs.
func appendAttribute(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}
