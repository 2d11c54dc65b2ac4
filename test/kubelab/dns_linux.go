package kubelab

import (
	_ "embed"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/source"
)

//go:embed dns.yaml
var dnsManifest string

const dnsImage = "localhost/coredns:test"

// DNSAddress is where pods ask, if there is a DNS server.
var DNSAddress = netip.MustParseAddr("10.96.0.10")

// buildDNS makes CoreDNS, of a module of its own, and its image.
func (l *Lab) buildDNS() {
	l.t.Helper()
	program, archive := filepath.Join(l.Dir, "coredns"), filepath.Join(l.Dir, "coredns.tar")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir = source.Path("test", "coredns")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("build CoreDNS: %v\n%s", err, out)
	}
	if err := images.Pack(dnsImage, program, images.Nobody, archive); err != nil {
		l.t.Fatalf("image %s: %v", dnsImage, err)
	}
	l.archives = append(l.archives, archive)
}

// startDNS installs CoreDNS, and returns when it answers.
func (c *Cluster) startDNS() error {
	text := strings.NewReplacer("ADDRESS", DNSAddress.String(), "IMAGE", dnsImage).Replace(dnsManifest)
	if _, err := c.KubectlInput(text, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("install CoreDNS: %w", err)
	}
	_, err := c.Kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout="+startLimit.String())
	return err
}
