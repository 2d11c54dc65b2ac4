package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// kind is a kind of objects of a peering, as the verbs name it.
type kind struct {
	name, plural string
	aliases      []string // besides plural
	title        string   // as the API spells it
	version      schema.GroupVersion
	object       func() client.Object
	list         func() client.ObjectList
}

var (
	kindConfiguration = &kind{
		name: "configuration", plural: "configurations", aliases: []string{"config", "conf"}, title: "Configuration", version: networkingv1beta1.GroupVersion,
		object: func() client.Object { return &networkingv1beta1.Configuration{} },
		list:   func() client.ObjectList { return &networkingv1beta1.ConfigurationList{} },
	}
	kindGatewayServer = &kind{
		name: "gatewayserver", plural: "gatewayservers", aliases: []string{"server", "servers", "gws"}, title: "GatewayServer", version: networkingv1beta1.GroupVersion,
		object: func() client.Object { return &networkingv1beta1.GatewayServer{} },
		list:   func() client.ObjectList { return &networkingv1beta1.GatewayServerList{} },
	}
	kindGatewayClient = &kind{
		name: "gatewayclient", plural: "gatewayclients", aliases: []string{"client", "clients", "gwc"}, title: "GatewayClient", version: networkingv1beta1.GroupVersion,
		object: func() client.Object { return &networkingv1beta1.GatewayClient{} },
		list:   func() client.ObjectList { return &networkingv1beta1.GatewayClientList{} },
	}
	kindPublicKey = &kind{
		name: "publickey", plural: "publickeies", aliases: []string{"publickeys"}, title: "PublicKey", version: networkingv1beta1.GroupVersion,
		object: func() client.Object { return &networkingv1beta1.PublicKey{} },
		list:   func() client.ObjectList { return &networkingv1beta1.PublicKeyList{} },
	}
	kindResourceSlice = &kind{
		name: "resourceslice", plural: "resourceslices", aliases: []string{"rs", "rslice"}, title: "ResourceSlice", version: authv1beta1.GroupVersion,
		object: func() client.Object { return &authv1beta1.ResourceSlice{} },
		list:   func() client.ObjectList { return &authv1beta1.ResourceSliceList{} },
	}
	kindVirtualNode = &kind{
		name: "virtualnode", plural: "virtualnodes", aliases: []string{"vn", "vnode"}, title: "VirtualNode", version: offloadingv1beta1.GroupVersion,
		object: func() client.Object { return &offloadingv1beta1.VirtualNode{} },
		list:   func() client.ObjectList { return &offloadingv1beta1.VirtualNodeList{} },
	}
	kindNamespace = &kind{
		name: "namespace", plural: "namespaces", aliases: []string{"ns"}, title: "Namespace", version: corev1.SchemeGroupVersion,
		object: func() client.Object { return &corev1.Namespace{} },
		list:   func() client.ObjectList { return &corev1.NamespaceList{} },
	}
	kindTenant = &kind{
		name: "tenant", plural: "tenants", aliases: []string{"tn"}, title: "Tenant", version: authv1beta1.GroupVersion,
		object: func() client.Object { return &authv1beta1.Tenant{} },
		list:   func() client.ObjectList { return &authv1beta1.TenantList{} },
	}
	kindIdentity = &kind{
		name: "identity", plural: "identities", aliases: []string{"id"}, title: "Identity", version: authv1beta1.GroupVersion,
		object: func() client.Object { return &authv1beta1.Identity{} },
		list:   func() client.ObjectList { return &authv1beta1.IdentityList{} },
	}
	kindConnection = &kind{
		name: "connection", plural: "connections", aliases: []string{"conn"}, title: "Connection", version: networkingv1beta1.GroupVersion,
		object: func() client.Object { return &networkingv1beta1.Connection{} },
		list:   func() client.ObjectList { return &networkingv1beta1.ConnectionList{} },
	}
)

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
