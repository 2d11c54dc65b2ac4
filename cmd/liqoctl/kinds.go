package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// kind is a kind of objects of a peering, as the verbs name it.
type kind struct {
	name, plural string
	aliases      []string // besides plural
	title        string   // as the API spells it
	version      schema.GroupVersion
}

var (
	kindConfiguration = &kind{name: "configuration", plural: "configurations", aliases: []string{"config", "conf"}, title: "Configuration", version: networkingv1beta1.GroupVersion}
	kindGatewayServer = &kind{name: "gatewayserver", plural: "gatewayservers", aliases: []string{"server", "servers", "gws"}, title: "GatewayServer", version: networkingv1beta1.GroupVersion}
	kindGatewayClient = &kind{name: "gatewayclient", plural: "gatewayclients", aliases: []string{"client", "clients", "gwc"}, title: "GatewayClient", version: networkingv1beta1.GroupVersion}
	kindPublicKey     = &kind{name: "publickey", plural: "publickeies", aliases: []string{"publickeys"}, title: "PublicKey", version: networkingv1beta1.GroupVersion}
	kindResourceSlice = &kind{name: "resourceslice", plural: "resourceslices", aliases: []string{"rs", "rslice"}, title: "ResourceSlice", version: authv1beta1.GroupVersion}
	kindVirtualNode   = &kind{name: "virtualnode", plural: "virtualnodes", aliases: []string{"vn", "vnode"}, title: "VirtualNode", version: offloadingv1beta1.GroupVersion}
	kindNamespace     = &kind{name: "namespace", plural: "namespaces", aliases: []string{"ns"}, title: "Namespace", version: corev1.SchemeGroupVersion}
	kindTenant        = &kind{name: "tenant", plural: "tenants", aliases: []string{"tn"}, title: "Tenant", version: authv1beta1.GroupVersion}
	kindIdentity      = &kind{name: "identity", plural: "identities", aliases: []string{"id"}, title: "Identity", version: authv1beta1.GroupVersion}
	kindConnection    = &kind{name: "connection", plural: "connections", aliases: []string{"conn"}, title: "Connection", version: networkingv1beta1.GroupVersion}
)

// scheme knows all of them.
var scheme = sync.OnceValue(kinds.Scheme)

// object is an empty object of the kind.
func (k *kind) object() client.Object { return empty(k.version.WithKind(k.title)).(client.Object) }

// list is an empty list of such objects.
func (k *kind) list() client.ObjectList {
	return empty(k.version.WithKind(k.title + "List")).(client.ObjectList)
}

func empty(kind schema.GroupVersionKind) runtime.Object {
	o, err := scheme().New(kind)
	if err != nil {
		panic(err) // a kind that is not registered
	}
	return o
}

// allAliases are the other names of the kind.
func (k *kind) allAliases() []string { return append([]string{k.plural}, k.aliases...) }

// sentence is the name of the kind at the beginning of a line: "Gatewayserver".
func (k *kind) sentence() string { return string(k.name[0]-'a'+'A') + k.name[1:] }

// titles are several: "GatewayServers".
func (k *kind) titles() string {
	if stem, ok := strings.CutSuffix(k.title, "ty"); ok {
		return stem + "ties"
	}
	return k.title + "s"
}

// of names an object: "GatewayServer default/server".
func (k *kind) of(key client.ObjectKey) string { return fmt.Sprintf("%s %s", k.title, key) }

// path is where the API server keeps objects of the kind. No namespace: all.
func (k *kind) path(namespace string) string {
	path := "/apis/" + k.version.Group + "/" + k.version.Version
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.plural
}

// userKinds are the kinds whose objects users write.
var userKinds = slices.Clip([]*kind{kindConfiguration, kindGatewayServer, kindGatewayClient, kindPublicKey})
