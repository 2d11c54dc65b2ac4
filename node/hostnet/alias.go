package hostnet

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The alias of a link begins with our mark. A kernel link knows the rest by
// itself; of a TUN device it is the only place that outlives the agent:
//
//	sluice: InternalFabric tenant/milan
//	sluice: InternalFabric tenant/milan (VNI 7, gateway 10.0.0.1:6091)
//
// That of a link which was Liqo's says which MAC address it keeps:
//
//	sluice: InternalFabric tenant/milan (MAC 4a:1b:00:5e:10:07)

const (
	aliasEnd = " (VNI "
	aliasMAC = " (MAC "
)

// alias is what the kernel is to keep of the link.
func (l *Link) alias() string {
	switch {
	case l.ethernet() && l.MAC != (MAC{}):
		return fmt.Sprintf("%s%s%s%v)", AliasPrefix, l.Owner, aliasMAC, l.MAC)
	case l.ethernet():
		return AliasPrefix + l.Owner
	}
	return fmt.Sprintf("%s%s%s%d, gateway %v)", AliasPrefix, l.Owner, aliasEnd, l.VNI, netip.AddrPortFrom(l.Gateway, l.Port))
}

// marked tells whether the link is ours: by its alias, or by its MAC address
// where its maker died before it could set the alias.
func (l *ActualLink) marked() bool {
	return strings.HasPrefix(l.Alias, AliasPrefix) ||
		l.Kind != KindTUN && strings.HasPrefix(l.Name, LinkPrefix) && l.MAC == linkMAC(l.Name, l.VNI)
}

// decodeAlias takes from the alias of a TUN device what the kernel knows of other
// kinds, and from that of a Geneve link which MAC address it keeps. What is not
// exactly as we write it says nothing.
func (l *ActualLink) decodeAlias() {
	if l.Kind == KindGeneve {
		l.decodeMAC()
		return
	}
	i := strings.LastIndex(l.Alias, aliasEnd)
	if l.Kind != KindTUN || i < 0 || !l.marked() {
		return
	}
	vni, gateway, _ := strings.Cut(strings.TrimSuffix(l.Alias[i+len(aliasEnd):], ")"), ", gateway ")
	number, badVNI := strconv.ParseUint(vni, 10, 24)
	far, badGateway := netip.ParseAddrPort(gateway)
	is := Link{Kind: KindTUN, Owner: l.Owner(), VNI: uint32(number), Gateway: far.Addr(), Port: far.Port()}
	if badVNI == nil && badGateway == nil && usable(is.Gateway) && is.Port > 0 && is.alias() == l.Alias {
		l.VNI, l.Gateway, l.Port = is.VNI, is.Gateway, is.Port
	}
}

func (l *ActualLink) decodeMAC() {
	owner, end, found := strings.Cut(strings.TrimPrefix(l.Alias, AliasPrefix), aliasMAC)
	m, err := net.ParseMAC(strings.TrimSuffix(end, ")"))
	if !found || err != nil || len(m) != len(MAC{}) {
		return
	}
	is := Link{Kind: KindGeneve, Owner: owner, MAC: MAC(m)}
	if is.MAC != (MAC{}) && is.MAC[0]&1 == 0 && is.alias() == l.Alias {
		l.KeptMAC = is.MAC
	}
}

// Owner names the object that the link was made from.
func (l *ActualLink) Owner() string {
	owner := strings.TrimPrefix(l.Alias, AliasPrefix)
	if l.KeptMAC != (MAC{}) {
		owner, _, _ = strings.Cut(owner, aliasMAC)
	}
	if i := strings.LastIndex(owner, aliasEnd); i >= 0 && l.Kind == KindTUN {
		owner = owner[:i]
	}
	return owner
}
