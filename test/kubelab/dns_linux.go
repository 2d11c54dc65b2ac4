package kubelab

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"
)

//go:embed dns.yaml
var dnsManifest string

const dnsImage = "localhost/coredns:test"

// DNSAddress is where pods ask, if there is a DNS server.
var DNSAddress = netip.MustParseAddr("10.96.0.10")

// startDNS installs CoreDNS, and returns when it answers.
func (c *Cluster) startDNS() error {
	text := strings.NewReplacer("ADDRESS", DNSAddress.String(), "IMAGE", dnsImage).Replace(dnsManifest)
	if _, err := c.KubectlInput(text, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("install CoreDNS: %w", err)
	}
	_, err := c.Kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout="+startLimit.String())
	return err
}
