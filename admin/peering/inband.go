package peering

import (
	"context"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// apiServerProxy is the IP, in the namespace of the installation, of the HTTP proxy in front of the API server, and
// apiServerProxyPort the port of that. Liqo's chart brings both.
const (
	apiServerProxy     = "api-server-proxy"
	apiServerProxyPort = "8118"
)

// inBand finds what the address of the provider's proxy is at the consumer: its API server is then reached through the
// tunnel.
func (h *handshake) inBand() *step {
	e, consumer := h.provider, h.consumer
	name := types.NamespacedName{Namespace: e.LiqoNamespace, Name: apiServerProxy}
	s := &step{in: e.Cluster, waiting: "Waiting for the address of the API server's proxy", clues: e.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		var ip ipamv1alpha1.IP
		err = e.Client.Get(ctx, name, &ip)
		if apierrors.IsNotFound(err) {
			return "", &complaint{fmt.Sprintf("there is no IP %s for an HTTP proxy in front of the API server: Sluice does not include such a proxy. Create an IP of this name for a proxy of your own that listens on port %s, or use --proxy-url to name a proxy that cluster %s reaches in another way",
				name, apiServerProxyPort, consumer.id)}
		}
		if err != nil {
			return "", e.Explain("read IP "+name.String(), err)
		}
		given, err := ip.Status.IP.Addr()
		if err != nil {
			return "IP " + name.String() + " has no address yet", nil
		}
		remaps, err := consumer.remaps(ctx, within(consumer.Cluster)...)
		if err != nil {
			return "", err
		}
		if remaps == nil {
			return fmt.Sprintf("cluster %s has no CIDRs for cluster %s: connect them with 'liqoctl network connect'", consumer.id, e.id), nil
		}
		here := Translate(remaps, given)
		if !here.IsValid() {
			return "", e.Errorf("IP %s has the address %s, which is not in the external CIDR that cluster %s knows", name, given, consumer.id)
		}
		h.proxyURL = new("http://" + net.JoinHostPort(here.String(), apiServerProxyPort))
		s.done = "The API server is reached through the tunnel: " + *h.proxyURL
		return "", nil
	}
	return s
}

// remaps are what stands at this end for the external CIDRs of the other one; nil: nothing yet. where says where to look.
func (e *end) remaps(ctx context.Context, where ...client.ListOption) ([]Remap, error) {
	var list networkingv1beta1.ConfigurationList
	if err := e.list(ctx, "Configurations", &list, append(where, client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: e.peer.id})...); err != nil {
		return nil, err
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Remote == nil {
			continue
		}
		remaps, err := Remaps(c.Spec.Remote.CIDR.External, c.Status.Remote.CIDR.External)
		if err != nil {
			return nil, e.Errorf("Configuration %s/%s: %w", c.Namespace, c.Name, err)
		}
		return remaps, nil
	}
	return nil, nil
}
