package kubernetes

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/test/kubelab"
)

// link is one link of a node as iproute2 shows it.
type link struct {
	Name  string `json:"ifname"`
	Alias string `json:"ifalias"`
	MTU   int    `json:"mtu"`
	Info  struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
	Addresses []struct {
		Local string `json:"local"`
	} `json:"addr_info"`
}

// liqoLinks are the links to gateways on a node, which the agent has made.
func liqoLinks(n *kubelab.Node) (links []link, err error) {
	out, err := n.Host.Try("ip", "-json", "-details", "address", "show")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var all []link
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("links of %s: %w", n.Name, err)
	}
	for _, l := range all {
		if strings.HasPrefix(l.Name, "liqo.") {
			links = append(links, l)
		}
	}
	return links, nil
}
