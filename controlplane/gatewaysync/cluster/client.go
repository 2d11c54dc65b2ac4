package cluster

import (
	"fmt"
	"net"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// clients are one REST client for each group. A clientset of all of Kubernetes
// would be a third of the program.
type clients struct {
	networking, ipam, coordination rest.Interface
	http                           *http.Client // of all of them
}

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

// newClients builds the clients.
func newClients(c *rest.Config) (out clients, err error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"}) // Status
	for _, add := range []func(*runtime.Scheme) error{
		networkingv1beta1.AddToScheme, ipamv1alpha1.AddToScheme, coordinationv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return out, fmt.Errorf("register kinds: %w", err)
		}
	}
	c = rest.CopyConfig(c)
	c.APIPath = "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	c.UserAgent = "sluice-gateway"
	c.WarningHandler = rest.NoWarnings{}
	// A dozen watches start at once; afterwards there are a few writes a second.
	c.QPS, c.Burst = 20, 60
	if c.Dial == nil {
		// Thirty seconds, which is the default, is long for a network that answers
		// in milliseconds.
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	if out.http, err = rest.HTTPClientFor(c); err != nil {
		return out, fmt.Errorf("build API client: %w", err)
	}
	for _, g := range []struct {
		version schema.GroupVersion
		client  *rest.Interface
	}{
		{networkingv1beta1.GroupVersion, &out.networking},
		{ipamv1alpha1.GroupVersion, &out.ipam},
		{coordinationv1.SchemeGroupVersion, &out.coordination},
	} {
		one := rest.CopyConfig(c)
		one.GroupVersion = &g.version
		if *g.client, err = rest.RESTClientForConfigAndClient(one, out.http); err != nil {
			return out, fmt.Errorf("build API client: %w", err)
		}
	}
	return out, nil
}
