package main

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

func TestKindsAreRegistered(t *testing.T) {
	for _, k := range []*kind{
		kindConfiguration, kindGatewayServer, kindGatewayClient, kindPublicKey, kindResourceSlice,
		kindVirtualNode, kindNamespace, kindTenant, kindIdentity, kindConnection,
	} {
		k.list()
		if gvk, err := apiutil.GVKForObject(k.object(), scheme()); err != nil || gvk != k.version.WithKind(k.title) {
			t.Errorf("object of %s: %s, %v", k.name, gvk, err)
		}
	}
}
