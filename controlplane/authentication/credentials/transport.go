package credentials

import (
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// maxHeader bounds what is read of the header of an answer, in bytes. Those of API servers have a few hundred.
const maxHeader = 64 << 10

// Transport speaks to the API server of another party, as [rest.TransportFor] has it, which reads headers of 10 MiB.
func Transport(cfg *rest.Config) (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return rest.HTTPWrappersForConfig(cfg, utilnet.SetTransportDefaults(&http.Transport{
		Proxy: cfg.Proxy, TLSClientConfig: tls, MaxResponseHeaderBytes: maxHeader,
	}))
}
