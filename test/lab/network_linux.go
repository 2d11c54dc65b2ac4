package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// networkCommands list everything that configures the network of a host.
// Neighbors are not among it, as they are learned; nor are counters.
var networkCommands = [][]string{
	{"ip", "-j", "-d", "link", "show"},
	{"ip", "-j", "addr", "show"},
	{"ip", "-j", "-4", "route", "show", "table", "all"},
	{"ip", "-j", "-6", "route", "show", "table", "all"},
	{"ip", "-j", "-4", "rule", "show"},
	{"ip", "-j", "-6", "rule", "show"},
}

// identity names what differs between a device and another one made exactly as
// it was, and what the kernel forgets when a small MTU takes IPv6 from it.
var identity = []string{"ifindex", "address", "permaddr", "link_index", "iflink", "inet6_addr_gen_mode"}

// Network returns the host's links, addresses, routes, rules and nftables, one
// a line, sorted. With same, two devices that were made alike are told apart;
// without, indices, MAC addresses and the link-local addresses made of them
// are left out.
func (h *Host) Network(same bool) ([]string, error) {
	var lines []string
	for _, command := range networkCommands {
		out, err := h.dump(command)
		if err != nil {
			return nil, err
		}
		var objects []map[string]any
		if err := json.Unmarshal([]byte(out), &objects); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
		}
		what := strings.Join(command[2:], " ")
		for _, o := range objects {
			if o["table"] == "local" && o["protocol"] == "kernel" {
				continue // follows from an address, for IPv6 only a moment later
			}
			settle(o)
			if !same {
				forget(o)
			}
			if b, _ := json.Marshal(o); len(o) > 0 && (same || !strings.Contains(string(b), "fe80:")) {
				lines = append(lines, what+": "+string(b))
			}
		}
	}
	slices.Sort(lines)
	out, err := h.Try("nft", "--stateless", "list", "ruleset") // in its own order, which means something
	return append(lines, strings.Split(strings.TrimSpace(out), "\n")...), err
}

// dump runs a command of iproute2 until nothing has changed meanwhile: then a list may lack something, of which
// ip warns on standard error and succeeds (NLM_F_DUMP_INTR).
func (h *Host) dump(command []string) (out string, err error) {
	for range 100 {
		out, err = h.Try(command...)
		if err != nil || !strings.Contains(out, "Dump was interrupted") {
			break
		}
	}
	return out, err
}

// settle removes what tells that a device is new.
func settle(o map[string]any) {
	list, _ := o["addr_info"].([]any)
	for _, a := range list {
		if m, ok := a.(map[string]any); ok {
			delete(m, "tentative")
		}
	}
}

// forget removes identity, and link-local addresses.
func forget(o map[string]any) {
	maps.DeleteFunc(o, func(key string, _ any) bool { return slices.Contains(identity, key) })
	if list, ok := o["addr_info"].([]any); ok {
		o["addr_info"] = slices.DeleteFunc(list, func(a any) bool {
			m, _ := a.(map[string]any)
			return m["scope"] == "link"
		})
	}
}
