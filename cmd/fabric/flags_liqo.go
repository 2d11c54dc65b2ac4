package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/node/hostnet"
)

// idleFlags are those of Liqo's node agent that have no meaning here, and why:
// manifests made for it go on working.
var idleFlags = map[string]string{
	"podname":                      "nothing is reported by pod",
	"geneve-cleanup-interval":      "links that are not desired any more are removed at once",
	"disable-arp":                  "gateways answer ARP",
	"enable-nft-monitor":           "changes by others are always noticed",
	"enable-route-monitor":         "changes by others are always noticed",
	"reconcile-timeout":            "nothing here waits for another host",
	"disable-kernel-version-check": "what the kernel can do is tried out",
	"minimum-kernel-version":       "what the kernel can do is tried out",
	"global-labels":                "it makes no objects",
	"global-annotations":           "it makes no objects",
}

// idleSwitches are the ones that need no value.
var idleSwitches = []string{"disable-arp", "enable-nft-monitor", "enable-route-monitor", "disable-kernel-version-check"}

func addIdleFlags(fs *pflag.FlagSet) {
	for name := range idleFlags {
		fs.String(name, "", "")
		fs.Lookup(name).Hidden = true
	}
	for _, name := range idleSwitches {
		fs.Lookup(name).NoOptDefVal = "true"
	}
}

// setIdleFlags returns the idle flags that are set, in their order on the
// command line.
func setIdleFlags(fs *pflag.FlagSet) (names []string) {
	fs.Visit(func(f *pflag.Flag) {
		if idleFlags[f.Name] != "" {
			names = append(names, f.Name)
		}
	})
	return names
}

// iptablesTables are those that iptables keeps in nf_tables. A FirewallConfiguration
// could be called so, but what would be removed is what keeps the node's network up.
var iptablesTables = []string{"filter", "nat", "mangle", "raw", "security"}

// badLiqoTable says why no nftables table of Liqo's has this name, or nothing.
func badLiqoTable(name string) string {
	switch {
	case name == hostnet.TranslationTable:
		return "is the table of fabric itself"
	case slices.Contains(iptablesTables, name):
		return "is a table of iptables"
	case name == "" || len(name) > 253 || strings.ContainsAny(name, " \t\n/"):
		return "is not the name of a table: give spec.table.name of a FirewallConfiguration"
	}
	return ""
}
