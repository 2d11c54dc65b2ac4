//go:build !linux

package hostnet

import (
	"context"
	"errors"
	"net/netip"
)

// errLinuxOnly is what everything returns here: the rest of the package is
// plain values, and useful to tests and tools everywhere.
var errLinuxOnly = errors.New("node networks are managed on Linux only")

// Conn is a connection to the kernel. This version is for systems other than
// Linux, where there is none.
type Conn struct{}

// Open fails.
func Open() (*Conn, error) { return nil, errLinuxOnly }

// OpenReadOnly fails.
func OpenReadOnly() (*Conn, error) { return nil, errLinuxOnly }

// Close does nothing.
func (c *Conn) Close() error { return nil }

// Read fails.
func (c *Conn) Read() (Actual, error) { return Actual{}, errLinuxOnly }

// Apply fails.
func (c *Conn) Apply(Plan) error { return errLinuxOnly }

// Watch fails.
func (c *Conn) Watch(context.Context, func(Event)) error { return errLinuxOnly }

// Path fails.
func (c *Conn) Path(netip.Addr, uint16) (Path, error) { return Path{}, errLinuxOnly }

// Networks fails.
func (c *Conn) Networks() ([]Network, error) { return nil, errLinuxOnly }

// Detours fails.
func (c *Conn) Detours([]Link, []netip.Prefix) ([]Detour, error) { return nil, errLinuxOnly }

// Probe finds no kind of link.
func (c *Conn) Probe() []KindSupport {
	supports := make([]KindSupport, 0, len(Kinds))
	for _, k := range Kinds {
		supports = append(supports, KindSupport{Kind: k, Reason: errLinuxOnly.Error()})
	}
	return supports
}

// Count fails.
func (c *Conn) Count(Flow) (*Counter, error) { return nil, errLinuxOnly }

// Counter counts packets, on Linux.
type Counter struct{}

// Read fails.
func (c *Counter) Read() ([]Passed, error) { return nil, errLinuxOnly }

// Close does nothing.
func (c *Counter) Close() error { return nil }

// Left fails.
func (c *Conn) Left(Predecessor) (Left, error) { return Left{}, errLinuxOnly }
