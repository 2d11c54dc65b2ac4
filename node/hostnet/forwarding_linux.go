package hostnet

import (
	"os"
	"strings"
)

// readForwarding looks whether this host passes packets on. What cannot be read
// is taken for right.
func (c *Conn) readForwarding(a *Actual) error {
	return c.inNamespace(func() error {
		a.NoForwarding.IPv4 = isZero("/proc/sys/net/ipv4/ip_forward")
		a.NoForwarding.IPv6 = isZero("/proc/sys/net/ipv6/conf/all/forwarding")
		return nil
	})
}

func isZero(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(text)) == "0"
}
