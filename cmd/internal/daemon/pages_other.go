//go:build !linux

package daemon

// SmallPages changes nothing on this system.
func SmallPages() {}
