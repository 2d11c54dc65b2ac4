package mirror

import (
	"fmt"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config finds the API server: by a kubeconfig file, or, with an empty path, as
// a pod does.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server as a pod does (or give --kubeconfig): %w", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// Group is a group of the API in one version.
type Group struct {
	Version     schema.GroupVersion
	AddToScheme func(*runtime.Scheme) error
	// Protobuf says that objects are sent and asked for in this form, which costs both sides less than JSON. API servers have
	// it for the kinds that are built into them.
	Protobuf bool
}

// Clients are one REST client for each group, over the same connections. A
// clientset of all of Kubernetes would be a third of a program.
type Clients struct {
	groups map[schema.GroupVersion]rest.Interface
	http   *http.Client
}

// NewClients builds the clients of a program that calls itself userAgent. It sets the
// rate of requests if the configuration does not.
func NewClients(c *rest.Config, userAgent string, groups ...Group) (*Clients, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"}) // Status
	for _, g := range groups {
		if err := g.AddToScheme(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	c = rest.CopyConfig(c)
	c.APIPath = "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	c.UserAgent = userAgent
	c.WarningHandler = rest.NoWarnings{}
	if c.QPS == 0 {
		// A dozen watches start at once; afterwards there are a few writes a second.
		c.QPS, c.Burst = 20, 60
	}
	if c.Dial == nil {
		// Thirty seconds, which is the default, is long for a network that answers
		// in milliseconds.
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("build API client: %w", err)
	}
	out := &Clients{groups: make(map[schema.GroupVersion]rest.Interface, len(groups)), http: client}
	for _, g := range groups {
		one := rest.CopyConfig(c)
		one.GroupVersion = &g.Version
		if g.Version.Group == "" {
			one.APIPath = "/api"
		}
		if g.Protobuf {
			one.ContentType, one.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		if out.groups[g.Version], err = rest.RESTClientForConfigAndClient(one, client); err != nil {
			return nil, fmt.Errorf("build API client: %w", err)
		}
	}
	return out, nil
}

// For returns the client of a group that NewClients was given.
func (c *Clients) For(v schema.GroupVersion) rest.Interface { return c.groups[v] }

// Disconnect closes the connections to the API server, once nothing uses the
// clients any more.
func (c *Clients) Disconnect() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }
