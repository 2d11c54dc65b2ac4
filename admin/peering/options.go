package peering

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Options say how two clusters are connected or separated. What is zero stays as
// it is where it exists already, and has the default where it is made.
type Options struct {
	// Timeout ends the work; 0: it may take as long as it takes.
	Timeout time.Duration
	// UntilTimeout waits until Timeout for a provider that does not hear what it is asked, and for a load balancer that
	// assigns no address. Otherwise these end the work before: most reasons do not go away by themselves.
	UntilTimeout bool
	// Wait is for what follows by itself: the connection, or the end of everything
	// that the controllers made.
	Wait bool
	// SkipValidation leaves out the checks of the templates.
	SkipValidation bool
	// Labels and Annotations are for everything that is created.
	Labels, Annotations map[string]string

	// ServerIsLocal lets the local cluster wait and the remote one dial.
	ServerIsLocal bool
	// DisableSharingKeys leaves it to the user to exchange the public keys.
	DisableSharingKeys bool
	// MTU is the largest packet that the tunnel carries.
	MTU int
	// Server describes the gateway server, Client the gateway client.
	Server ServerFlags
	Client ClientFlags

	// ProxyURL is the HTTP proxy by which a consumer reaches the provider's API server; nil: as it is.
	ProxyURL *string
	// InBand lets the consumer reach it through the tunnel, by the provider's own proxy, in place of ProxyURL.
	InBand bool

	// RemoteClusterID is the ID of a remote cluster that is gone for good.
	RemoteClusterID string
	// DeleteNamespaces has Reset delete the tenant namespaces too, if nothing of
	// anybody else is in them; OwnNamespaces only those that Connect or Init made.
	DeleteNamespaces, OwnNamespaces bool
	// Confirm is called by Disconnect, Reset, ChangeTenant and ChangeSlice with what they would do, in lines,
	// unless there is nothing to do. If it returns an error, they end before anything is changed. Nil: nobody is asked.
	Confirm func(ctx context.Context, what []string) error
}

// TemplateFlags name a template.
type TemplateFlags struct {
	// Type is group/version/resource.
	Type string
	// Name and Namespace are the template's. No namespace: the installation's.
	Name, Namespace string
}

// ServerFlags describe a gateway server.
type ServerFlags struct {
	Template    TemplateFlags
	ServiceType corev1.ServiceType
	// Ports are those of the Service, one for each tunnel; NodePorts those of the first tunnels.
	Ports, NodePorts []int32
	LoadBalancerIP   string
}

// ClientFlags describe a gateway client.
type ClientFlags struct {
	Template TemplateFlags
	// Address and Ports are where the server is reached; zero: what the server
	// itself tells.
	Address string
	Ports   []int32
}

// ServiceTypes are the ways to expose a gateway server.
var ServiceTypes = []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP}

// Validate finds what no cluster could work with. Its messages name flags.
func (o Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.MTU != 0 && (o.MTU < MinMTU || o.MTU > MaxMTU) {
		wrong("--mtu %d: must be from %d to %d", o.MTU, MinMTU, MaxMTU)
	}
	s := o.Server
	if s.ServiceType != "" && !slices.Contains(ServiceTypes, s.ServiceType) {
		wrong("--gw-server-service-type %q: must be LoadBalancer, NodePort or ClusterIP", s.ServiceType)
	}
	for _, p := range []struct {
		flag  string
		ports []int32
	}{{"--gw-server-service-port", s.Ports}, {"--gw-server-service-nodeport", s.NodePorts}, {"--gw-client-port", o.Client.Ports}} {
		for i, port := range p.ports {
			if port < 1 || port > 65535 {
				wrong("%s %d: must be from 1 to 65535", p.flag, port)
			} else if slices.Contains(p.ports[:i], port) {
				wrong("%s %s: %d is there twice, and each port is a tunnel of its own", p.flag, networkingv1beta1.PortsText(p.ports), port)
			}
		}
		if n := len(p.ports); n > MaxTunnels {
			wrong("%s: there can be %d tunnels, and these are %d ports", p.flag, MaxTunnels, n)
		}
	}
	if n := len(s.NodePorts); n > max(1, len(s.Ports)) {
		wrong("--gw-server-service-nodeport %s: each tunnel has a port and a node port; name %d ports with --gw-server-service-port, too", networkingv1beta1.PortsText(s.NodePorts), n)
	}
	if n, m := len(s.Ports), len(o.Client.Ports); n > 0 && m > 0 && n != m {
		wrong("--gw-server-service-port %s, --gw-client-port %s: each tunnel has one of both; name the same number", networkingv1beta1.PortsText(s.Ports), networkingv1beta1.PortsText(o.Client.Ports))
	}
	if len(s.NodePorts) > 0 && s.ServiceType == corev1.ServiceTypeClusterIP {
		wrong("--gw-server-service-nodeport %s: a Service of type ClusterIP has no node port; use --gw-server-service-type NodePort", networkingv1beta1.PortsText(s.NodePorts))
	}
	if s.LoadBalancerIP != "" {
		if _, err := netip.ParseAddr(s.LoadBalancerIP); err != nil {
			wrong("--gw-server-service-loadbalancerip %q: must be an IP address", s.LoadBalancerIP)
		}
		if t := s.ServiceType; t != "" && t != corev1.ServiceTypeLoadBalancer {
			wrong("--gw-server-service-loadbalancerip %s: a Service of type %s has none; use --gw-server-service-type LoadBalancer", s.LoadBalancerIP, t)
		}
	}
	if a := o.Client.Address; a != "" && !isHost(a) {
		wrong("--gw-client-address %q: must be an IP address or a DNS name, without a port (that is --gw-client-port)", a)
	}
	return errors.Join(errs...)
}

// hostName is what the API takes for a DNS name.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*[.]?$`)

// allDigits is a name that was meant to be an IPv4 address.
var allDigits = regexp.MustCompile(`^[0-9.]+$`)

func isHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	return len(s) <= 253 && hostName.MatchString(s) && !allDigits.MatchString(strings.TrimSuffix(s, "."))
}
