package controlplanetest

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// PeeringEnd is one end of a peering, as its gateway has it.
type PeeringEnd struct {
	// Namespace is the tenant namespace, Peer the ID of the other cluster.
	Namespace, Peer string
	// Mode is server or client.
	Mode string
	// Host is the address of the gateway, Server that of the gateway which is the server.
	Host, Server string
	// PeerKey is the public key of the other gateway.
	PeerKey [32]byte
	// Number tells ends in one cluster apart: the internal network of the gateway is 10.80.N.0/24.
	Number int
}

// Fill puts what is known of the end into manifests, such as [GatewayObjects].
func (e PeeringEnd) Fill(manifests string) string {
	kind, endpoint := "GatewayServer", "{port: 51840, serviceType: ClusterIP}"
	if e.Mode == "client" {
		kind, endpoint = "GatewayClient", "{port: 51840, addresses: ["+e.Server+"], protocol: UDP}"
	}
	return strings.NewReplacer(
		"$NAMESPACE", e.Namespace, "$KIND", kind, "$ENDPOINT", endpoint, "$PEERKEY", base64.StdEncoding.EncodeToString(e.PeerKey[:]),
		"$PEER", e.Peer, "$HOST", e.Host, "$MODE", e.Mode, "$N", fmt.Sprint(e.Number),
	).Replace(manifests)
}

// GatewayObjects are the objects of a peering that a gateway cannot do without. Both clusters have pods in 10.243.0.0/16,
// which the other one knows as 10.61.0.0/16.
const GatewayObjects = `
apiVersion: networking.liqo.io/v1beta1
kind: $KIND
metadata: {name: gw, namespace: $NAMESPACE, labels: {liqo.io/remote-cluster-id: $PEER}}
spec: {mtu: 1340, endpoint: $ENDPOINT}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: $PEER, namespace: $NAMESPACE, labels: {liqo.io/remote-cluster-id: $PEER, networking.liqo.io/gateway-resource: "true"}}
spec: {publicKey: $PEERKEY}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: $PEER, namespace: $NAMESPACE, labels: {liqo.io/remote-cluster-id: $PEER}}
spec:
  local: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}
  remote: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}
status:
  remote: {cidr: {pod: 10.61.0.0/16, external: 10.71.0.0/16}}
  conditions: [{type: NetworkCIDRsConfigured, status: "True", reason: NetworkCIDRsConfigured, message: done, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}]
---
apiVersion: networking.liqo.io/v1beta1
kind: InternalFabric
metadata: {name: $PEER, namespace: $NAMESPACE, labels: {liqo.io/remote-cluster-id: $PEER}}
spec: {mtu: 1340, gatewayIP: $HOST, interface: {node: {name: liqo.$N}, gateway: {ip: 10.80.$N.1}}}`

// GatewayConnection is where a gateway tells about itself. The controllers make it.
const GatewayConnection = `
---
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: gw-gw, namespace: $NAMESPACE, labels: {liqo.io/remote-cluster-id: $PEER}}
spec: {type: Server, gatewayRef: {kind: WgGatewayServer, name: gw, namespace: $NAMESPACE}}`

// CreateText creates the objects of manifests, with their status.
func (c *Cluster) CreateText(tb testing.TB, manifests string) {
	tb.Helper()
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			tb.Fatalf("%v in\n%s", err, text)
		}
		status, has := o.Object["status"]
		if c.Create(tb, o); has {
			o.Object["status"] = status
			write(tb, "write the status of", o, func(ctx context.Context) error { return c.Client.Status().Update(ctx, o) })
		}
	}
}
