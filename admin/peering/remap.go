package peering

import (
	"fmt"
	"net/netip"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/reflection"
)

// Remap is a CIDR as the other cluster uses it, and as it is used here.
type Remap struct {
	There netip.Prefix `json:"there"`
	Here  netip.Prefix `json:"here"`
}

// Remaps pairs the CIDRs of the other cluster, from the spec of a Configuration, with
// what its status says they are here.
func Remaps(there, here networkingv1beta1.CIDRs) ([]Remap, error) {
	theirs, err := there.Prefixes()
	if err != nil {
		return nil, err
	}
	ours, err := here.Prefixes()
	if err != nil {
		return nil, err
	}
	if len(theirs) != len(ours) {
		return nil, fmt.Errorf("its status has %d CIDRs, its spec %d: the controllers have not finished yet", len(ours), len(theirs))
	}
	out := make([]Remap, len(theirs))
	for i := range theirs {
		if theirs[i].Bits() != ours[i].Bits() {
			return nil, fmt.Errorf("%s cannot be remapped to %s: the prefixes differ in length", theirs[i], ours[i])
		}
		out[i] = Remap{There: theirs[i], Here: ours[i]}
	}
	return out, nil
}

// Translate returns what an address of the other cluster is here. One that lies
// in none of the CIDRs is invalid.
func Translate(remaps []Remap, there netip.Addr) netip.Addr {
	for _, r := range remaps {
		if r.There.Contains(there) {
			return reflection.Remapped(there, r.Here)
		}
	}
	return netip.Addr{}
}
