package reflection

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Addresses translates addresses of the other cluster of a peering to those by which this one reaches them. The zero value
// knows none.
type Addresses struct {
	remaps []remap
	pods   int // so many of them, the first ones, are of pod CIDRs
}

// remap pairs two prefixes of the same family and length.
type remap struct{ there, here netip.Prefix }

// NewAddresses takes the CIDRs of the other cluster, pod CIDRs first, from a Configuration. It fails while the status of the
// Configuration does not answer its spec.
func NewAddresses(c *networkingv1beta1.Configuration) (a Addresses, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the Configuration %s/%s %w", c.Namespace, c.Name, err)
		}
	}()
	if c.Status.Remote == nil {
		return a, errors.New("has no remapped CIDRs yet")
	}
	for _, kind := range []struct {
		name        string
		there, here networkingv1beta1.CIDRs
	}{
		{"pod", c.Spec.Remote.CIDR.Pod, c.Status.Remote.CIDR.Pod},
		{"external", c.Spec.Remote.CIDR.External, c.Status.Remote.CIDR.External},
	} {
		there, err := kind.there.Prefixes()
		if err != nil {
			return a, fmt.Errorf("has a bad %s CIDR in its spec: %w", kind.name, err)
		}
		here, err := kind.here.Prefixes()
		if err != nil {
			return a, fmt.Errorf("has a bad %s CIDR in its status: %w", kind.name, err)
		}
		if len(there) != len(here) {
			return a, fmt.Errorf("has %d %s CIDRs in its status, and %d in its spec", len(here), kind.name, len(there))
		}
		for i := range there {
			if there[i].Bits() != here[i].Bits() || there[i].Addr().Is4() != here[i].Addr().Is4() {
				return a, fmt.Errorf("remaps the %s CIDR %s to %s, which is of another size or family", kind.name, there[i], here[i])
			}
			a.remaps = append(a.remaps, remap{there[i].Masked(), here[i].Masked()})
		}
		if kind.name == "pod" {
			a.pods = len(a.remaps)
		}
	}
	return a, nil
}

// OldestAddresses takes the CIDRs from the Configuration of a peering: of several the oldest counts, as for the network.
func OldestAddresses(of []networkingv1beta1.Configuration) (Addresses, error) {
	if len(of) == 0 {
		return Addresses{}, errors.New("there is no Configuration")
	}
	oldest := slices.MinFunc(of, func(a, b networkingv1beta1.Configuration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return NewAddresses(&oldest)
}

// Pods are those of the other cluster's pod CIDRs alone.
func (a Addresses) Pods() Addresses { return Addresses{remaps: a.remaps[:a.pods], pods: a.pods} }

// External are those of the other cluster's external CIDRs alone.
func (a Addresses) External() Addresses { return Addresses{remaps: a.remaps[a.pods:]} }

// Here returns the address by which this cluster reaches an address of the other one. It is false for an address that
// belongs to none of the other cluster's CIDRs: here it would be somebody else's.
func (a Addresses) Here(there netip.Addr) (netip.Addr, bool) {
	there = there.Unmap()
	for _, r := range a.remaps {
		if r.there.Contains(there) {
			return Remapped(there, r.here), true
		}
	}
	return netip.Addr{}, false
}

// Remapped is the host of an address in another prefix of the same family and length; invalid for one of another family.
func Remapped(a netip.Addr, to netip.Prefix) netip.Addr {
	host, network := a.AsSlice(), to.Addr().AsSlice()
	if len(host) != len(network) {
		return netip.Addr{}
	}
	for i := range host {
		bits := min(max(to.Bits()-8*i, 0), 8) // of the prefix in this byte
		mask := byte(0xff << (8 - bits))
		host[i] = network[i]&mask | host[i]&^mask
	}
	out, _ := netip.AddrFromSlice(host)
	return out
}
