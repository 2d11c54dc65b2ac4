package issue

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

// APIServer is where consumers reach the API server of this cluster.
type APIServer struct {
	// URL is its address; empty: that of the endpoints of Service default/kubernetes.
	URL string
	// CA is its certificate authority, PEM; empty: consumers trust those of their system.
	CA []byte
}

// apiServerRecheck is how soon an unknown address is looked for again.
const apiServerRecheck = time.Minute

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list

// lookup finds the address where it is not told.
func (a APIServer) lookup(ctx context.Context, reader client.Reader) (APIServer, *Problem, error) {
	if a.URL != "" {
		return a, nil, nil
	}
	var list discoveryv1.EndpointSliceList
	err := reader.List(ctx, &list, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})
	if err != nil {
		return a, nil, fmt.Errorf("look for the address of the API server: %w", err)
	}
	if a.URL = endpoint(list.Items); a.URL == "" {
		return a, &Problem{
			Reason:  authv1beta1.ReasonAPIServerUnknown,
			Message: "the address of this cluster's API server is not known: set --api-server-url of the controller (chart: apiServer.address) to the one by which consumers reach it",
			Retry:   apiServerRecheck,
		}, nil
	}
	return a, nil, nil
}

// endpoint is the URL of the first address of the API server, in the order of the addresses, so that it does not
// change without need.
func endpoint(of []discoveryv1.EndpointSlice) string {
	var hosts []string
	for _, s := range of {
		if len(s.Ports) == 0 || s.Ports[0].Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				hosts = append(hosts, net.JoinHostPort(a, strconv.Itoa(int(*s.Ports[0].Port))))
			}
		}
	}
	if len(hosts) == 0 {
		return ""
	}
	return "https://" + slices.Min(hosts)
}
