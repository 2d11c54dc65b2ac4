package survey

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/controlplane/access"
)

// Options say what is read.
type Options struct {
	// Namespace limits the objects of peerings to one namespace; empty: all.
	Namespace string
	// Peers limits Cluster.Peers to these remote clusters; empty: all.
	Peers []string
}

// Read reads a cluster. What it may not or cannot read is a Gap; the error is for
// a cluster that does not answer at all.
func Read(ctx context.Context, c *access.Cluster, o Options) (*Cluster, error) {
	return nil, nil
}

// AskGateways fills in the Reports of the gateways, several at a time.
func AskGateways(ctx context.Context, c *access.Cluster, s *Cluster) {}

// ReadGateway asks a gateway pod for its report.
func ReadGateway(ctx context.Context, c *access.Cluster, pod types.NamespacedName) (*GatewayReport, error) {
	return nil, nil
}

// ReadFabric asks the agent of a node, whose pod it is, for its report.
func ReadFabric(ctx context.Context, c *access.Cluster, pod types.NamespacedName) (*FabricReport, error) {
	return nil, nil
}
