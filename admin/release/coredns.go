package release

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

const (
	// dnsNamespace and corefileKey are where CoreDNS has its configuration, in kubeadm, kind, k3s, AKS and EKS.
	dnsNamespace = "kube-system"
	corefileMap  = "coredns"
	corefileKey  = "Corefile"
	// customMap is the ConfigMap from which CoreDNS imports where the distribution writes the Corefile itself (AKS, k3s),
	// and customKey our file in it.
	customMap = "coredns-custom"
	customKey = "sluice.server"
	// clusterSetZone is the chart's default of clusterDNS.zone.
	clusterSetZone = "clusterset.local"
	// dnsService is the Service of our DNS server.
	dnsService = "liqo-clusterdns"

	blockBegin = "# Begin of the zone that liqoctl added: Services of other clusters."
	blockEnd   = "# End of the zone that liqoctl added."
)

// importsCustom finds where a Corefile imports server blocks of customMap.
var importsCustom = regexp.MustCompile(`(?m)^\s*import\s+\S*custom/\*\.server\s*$`)

// block is the server block that forwards zone to address.
func block(zone, address string) string {
	return fmt.Sprintf("%s\n%s:53 {\n    errors\n    cache 5\n    forward . %s\n}\n%s\n", blockBegin, zone, address, blockEnd)
}

// withBlock is a Corefile with a block of ours, and none but this.
func withBlock(corefile, zone, address string) (string, error) {
	rest, _, err := withoutBlock(corefile)
	if err != nil {
		return "", err
	}
	for _, key := range serverKeys(rest) {
		if strings.EqualFold(strings.TrimSuffix(key, "."), zone) {
			return "", fmt.Errorf("it already has a server block for %s that liqoctl did not add: remove it, or keep it and install without --coredns", zone)
		}
	}
	if rest != "" && !strings.HasSuffix(rest, "\n") {
		rest += "\n"
	}
	return rest + block(zone, address), nil
}

// withoutBlock is a Corefile without what liqoctl added, and tells whether there was anything.
func withoutBlock(corefile string) (rest string, had bool, err error) {
	before, after, had := strings.Cut(corefile, blockBegin)
	if !had {
		return corefile, false, nil
	}
	_, after, whole := strings.Cut(after, blockEnd)
	if !whole || strings.Contains(after, blockBegin) {
		return "", true, fmt.Errorf("somebody has changed the lines between %q and %q: remove them by hand", blockBegin, blockEnd)
	}
	return before + strings.TrimPrefix(after, "\n"), true, nil
}

// serverKeys are the zones of the server blocks of a Corefile, without scheme and port.
func serverKeys(corefile string) (zones []string) {
	depth := 0
	for line := range strings.Lines(corefile) {
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		for _, token := range strings.Fields(line) {
			switch {
			case token == "}":
				depth--
			case strings.HasSuffix(token, "{"):
				if name := strings.TrimSuffix(token, "{"); name != "" && depth == 0 {
					zones = append(zones, zoneOf(name))
				}
				depth++
			case depth == 0:
				zones = append(zones, zoneOf(strings.TrimSuffix(token, ",")))
			}
		}
	}
	return zones
}

// zoneOf is the zone of dns://example.org:53.
func zoneOf(key string) string {
	if _, after, ok := strings.Cut(key, "://"); ok {
		key = after
	}
	zone, _, _ := strings.Cut(key, ":")
	return zone
}

// canForward tells what will keep forward from its work.
func canForward(ctx context.Context, c *access.Cluster, zone string) error {
	m, _, key, err := corefile(ctx, c)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("--coredns: there is no ConfigMap %s/%s, so the DNS server of the cluster is not CoreDNS, or has another name: "+
			"install with --set clusterDNS.enabled=true instead, and make it forward %s to the Service %s", dnsNamespace, corefileMap, zone, dnsService)
	}
	if err != nil {
		return fmt.Errorf("--coredns: read the configuration of CoreDNS: %w", err)
	}
	if _, err := withBlock(m.Data[key], zone, "192.0.2.1"); err != nil {
		return fmt.Errorf("--coredns: the %s of ConfigMap %s/%s: %w", key, dnsNamespace, m.Name, err)
	}
	return nil
}

// forward makes CoreDNS forward the zone to the Service of our DNS server. wanted: the user asks for it; otherwise what is
// there from an earlier installation is kept true, or taken back where the DNS server is no longer wanted.
func forward(ctx context.Context, c *access.Cluster, zone string, enabled, wanted bool, tell progress.Func) (changed bool, err error) {
	if !enabled {
		return unforward(ctx, c, tell)
	}
	var service corev1.Service
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.LiqoNamespace, Name: dnsService}, &service); err != nil {
		return false, c.Explain("read the Service "+dnsService, err)
	}
	where := corefileMap
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		m, exists, key, err := corefile(ctx, c)
		if err != nil {
			if !wanted && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
				return nil // nobody asked for it, and there is no CoreDNS that could have it, or none that this user may look at
			}
			return err
		}
		where = m.Name
		if _, had, err := withoutBlock(m.Data[key]); !wanted && (err != nil || !had) {
			return nil
		}
		text, err := withBlock(m.Data[key], zone, service.Spec.ClusterIP)
		if err != nil {
			return c.Errorf("the %s of ConfigMap %s/%s: %w", key, dnsNamespace, m.Name, err)
		}
		if text == m.Data[key] {
			return nil
		}
		changed = true
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		m.Data[key] = text
		if !exists {
			return c.Client.Create(ctx, m, fieldOwner)
		}
		return c.Client.Update(ctx, m, fieldOwner) // with its version: what others wrote meanwhile is not lost
	})
	if err != nil {
		return false, c.Explain("change the configuration of CoreDNS", err)
	}
	if changed {
		tell.Done(c.Name, fmt.Sprintf("CoreDNS forwards %s to %s (ConfigMap %s/%s); it notices within a minute", zone, service.Spec.ClusterIP, dnsNamespace, where))
	}
	return changed, nil
}

// unforward takes back what forward did.
func unforward(ctx context.Context, c *access.Cluster, tell progress.Func) (changed bool, err error) {
	for name, key := range map[string]string{corefileMap: corefileKey, customMap: customKey} {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			var m corev1.ConfigMap
			if err := c.Client.Get(ctx, client.ObjectKey{Namespace: dnsNamespace, Name: name}, &m); err != nil {
				if apierrors.IsForbidden(err) {
					return nil // who may not read it has not written it
				}
				return client.IgnoreNotFound(err)
			}
			text, had, err := withoutBlock(m.Data[key])
			if err != nil {
				tell.Warning(c.Name, fmt.Sprintf("The %s of ConfigMap %s/%s is left unchanged: %v", key, dnsNamespace, name, err))
				return nil
			}
			if !had {
				return nil
			}
			if m.Data[key] = text; text == "" {
				delete(m.Data, key)
			}
			changed = true
			return c.Client.Update(ctx, &m, fieldOwner)
		})
		if err != nil {
			return changed, c.Explain("remove the zone from the configuration of CoreDNS", err)
		}
	}
	if changed {
		tell.Done(c.Name, "CoreDNS no longer forwards anything to Sluice")
	}
	return changed, nil
}

// corefile finds the ConfigMap and its key that a block of ours belongs into.
func corefile(ctx context.Context, c *access.Cluster) (m *corev1.ConfigMap, exists bool, key string, err error) {
	m = new(corev1.ConfigMap)
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: dnsNamespace, Name: corefileMap}, m); err != nil {
		return nil, false, "", err
	}
	if !importsCustom.MatchString(m.Data[corefileKey]) {
		return m, true, corefileKey, nil
	}
	m = new(corev1.ConfigMap)
	err = c.Client.Get(ctx, client.ObjectKey{Namespace: dnsNamespace, Name: customMap}, m)
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: dnsNamespace, Name: customMap}}, false, customKey, nil
	}
	return m, true, customKey, err
}
