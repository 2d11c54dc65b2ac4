// Command coredns is CoreDNS with the plugins that the DNS of a cluster needs, for clusters of tests. It is a module of its
// own: nothing of it is part of what the project ships. TestClusters, TestPeerings and `make lab` build it, and need its
// modules, too.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

// The order is that of CoreDNS itself.
func init() {
	dnsserver.Directives = []string{"reload", "ready", "errors", "cache", "kubernetes", "forward"}
}

func main() { coremain.Run() }
