package control

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// Feed is where the objects come from: a directory of manifests, or an API
// server.
type Feed interface {
	// Read returns the objects as they are now. When their digest is known, the
	// digest alone. An error is of type manifests.Problems, or manifests.Waiting
	// while there is nothing to read yet; the digest is that of what it speaks of,
	// zero if the same call may give another result.
	Read(known manifests.Digest) (Reading, error)
	// Watch calls changed whenever Read may return something else, until ctx
	// ends. Spurious calls are normal.
	Watch(ctx context.Context, changed func())
}

// Reading is one state of the objects.
type Reading struct {
	Digest   manifests.Digest
	Objects  Objects
	Warnings manifests.Problems
	// Heavy says that reading left so much garbage behind that it is worth a
	// collection: the next cycle of an idle gateway may be minutes away.
	Heavy bool
	// Kept is when the objects were the newest, where they were kept over a restart and
	// the API server has not told yet how they are now; zero: they are as they are now.
	Kept time.Time
	// Accepted is called when the objects are in force. Nil: nobody asks.
	Accepted func()
}

// Reporter is where the gateway says how it is: the Connection above all.
type Reporter interface {
	// Report takes the newest state and writes what is worth it, now or soon: it
	// does not wait for a network. The error is why the last state may not be
	// written.
	Report(Report) error
	// Withdraw forgets what was reported: it is another replica's to write now.
	Withdraw()
	// Close returns when the last state is written, or cannot be.
	Close()
}

// Report is what a gateway tells about itself.
type Report struct {
	Time    time.Time
	Gateway Gateway
	Peer    Peer
	// Generation counts the states that were applied; zero: nothing is in force.
	Generation uint64
	// Refused and Ignored are those of State.
	Refused, Ignored manifests.Problems
	// Missing and Kept are those of Desired.
	Missing manifests.Problems
	Kept    time.Time
	// Firewall is that of what is in force.
	Firewall []FirewallReport
}

// ConnectionStatus is the report in the words of a Connection, without
// conditions.
func (r Report) ConnectionStatus() networkingv1beta1.ConnectionStatus {
	return networkingv1beta1.ConnectionStatus{
		Value:   r.Peer.Value,
		Latency: networkingv1beta1.ConnectionLatency{Value: r.Peer.LatencyText, Timestamp: metav1.NewTime(r.Peer.Timestamp.UTC())},
	}
}

// reader says what of a manifests directory is for a gateway.
var reader = manifests.Reader{Name: "the gateway", Kinds: []string{
	"Secret", "GatewayServer", "GatewayClient", "PublicKey", "Configuration", "InternalFabric", "InternalNode", "GeneveTunnel",
	"RouteConfiguration", "FirewallConfiguration", "IP", "Network", "ExportedService",
}}

// directory is the Feed outside of clusters.
type directory struct{ manifests.Directory }

// Read implements Feed.
func (d directory) Read(known manifests.Digest) (Reading, error) {
	r, err := d.Directory.Read(known)
	return Reading{Digest: r.Digest, Objects: Objects{Objects: r.Objects}, Warnings: r.Warnings, Heavy: r.Heavy}, err
}
