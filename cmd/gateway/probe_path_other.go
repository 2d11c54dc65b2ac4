//go:build !linux

package main

import "net/netip"

// pathMTU is not known here.
func pathMTU(netip.AddrPort) int { return 0 }
