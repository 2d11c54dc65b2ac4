package cidr

import (
	"fmt"
	"net/netip"
)

// FullError says that a prefix has no free address.
type FullError struct {
	Prefix netip.Prefix
	// Held is how many of its addresses are held.
	Held int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no address of %s is free: %d are held", e.Prefix, e.Held)
}

// TakenError says that another owner holds an address.
type TakenError struct {
	Addr  netip.Addr
	Owner string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s is held by %s", e.Addr, e.Owner)
}
