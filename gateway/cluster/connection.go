package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/objects/mirror"
)

// reporter writes what a gateway tells of itself, always the newest report.
type reporter struct {
	link        *Link
	connections *mirror.Store[networkingv1beta1.Connection, *networkingv1beta1.Connection]
	writer      *mirror.Writer

	// The writer's:
	written       time.Time // when the Connection was written last
	mayNotCreate  bool      // this gateway may not make its Connection
	noConditions  bool      // the cluster's schema of Connections has no conditions
	fewConditions bool      // its schema of FirewallConfigurations has only those of Liqo

	mu     sync.Mutex
	newest *control.Report // nil: none yet
	err    error           // of the last write
}

// connectionName is the Connection of a gateway.
func connectionName(gateway string) string { return "gw-" + gateway }

func newReporter(l *Link) *reporter {
	r := &reporter{link: l, connections: mirror.NewStore[networkingv1beta1.Connection]()}
	r.writer = mirror.NewWriter(r.write)
	r.connections.Changed = r.writer.Wake
	return r
}

// follow keeps the Connection at hand until ctx ends.
func (r *reporter) follow(ctx context.Context) {
	l := r.link
	mirror.Follow(ctx, mirror.Watched{
		Client: l.networking, Resource: "connections", Namespace: l.options.Namespace,
		Fields: fields.OneTermEqualSelector("metadata.name", connectionName(l.options.Name)).String(),
	}, r.connections, l.mirror.Contact())
}

// Report implements control.Reporter.
func (l *Link) Report(report control.Report) error {
	r := l.reporter
	r.mu.Lock()
	r.newest = &report
	err := r.err
	r.mu.Unlock()
	r.writer.Wake()
	return err
}

// Withdraw implements control.Reporter.
func (l *Link) Withdraw() {
	r := l.reporter
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest, r.err = nil, nil
}

// Close implements control.Reporter: it writes the last report.
func (l *Link) Close() { l.reporter.writer.Last() }

// Disconnect closes the connections to the API server, once nothing uses the
// Link any more.
func (l *Link) Disconnect() { l.clients.Disconnect() }

// errNoConnection: a gateway may not create it.
const errNoConnection = mirror.AbsentError("there is no Connection yet: the controller makes it")

// write writes the newest report where it differs from what the API server has.
func (r *reporter) write(ctx context.Context, last bool) (wrote bool, err error) {
	r.mu.Lock()
	report := r.newest
	r.mu.Unlock()
	if report == nil {
		return false, nil // this gateway has nothing to tell: it stands by
	}
	wrote, err = r.writeConnection(ctx, *report, last)
	tables, tablesErr := r.writeFirewalls(ctx, *report)
	wrote, err = wrote || tables, errors.Join(err, tablesErr)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	return wrote, err
}

func (r *reporter) writeConnection(ctx context.Context, report control.Report, last bool) (wrote bool, err error) {
	live := r.connections.Only()
	switch _, synced := r.connections.Size(); {
	case live != nil:
	case synced:
		return r.createConnection(ctx)
	default:
		return false, nil // the first list will wake us
	}
	want := statusOf(report, live)
	have := live.Status
	if r.noConditions {
		have.Conditions = want.Conditions
	}
	if !last && !due(have, want, report.Time.Sub(r.written), r.link.options.UpdateInterval) {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{"status": want})
	if err != nil {
		return false, fmt.Errorf("encode Connection: %w", err)
	}
	var after networkingv1beta1.Connection
	err = r.link.networking.Patch(types.MergePatchType).Namespace(live.Namespace).Resource("connections").Name(live.Name).
		SubResource("status").Body(patch).Do(ctx).Into(&after)
	if err != nil {
		return false, fmt.Errorf("write Connection: %s", mirror.PlainError(err))
	}
	r.written = time.Now()
	r.noConditions = len(after.Status.Conditions) == 0 // which are always written, in case that the CRD is a newer one now
	r.connections.Wrote(&after)
	return true, nil
}

// createConnection makes the Connection where the cluster's controller does not: with
// Liqo gateways do it, and its role for them allows it. It goes with the gateway's object.
func (r *reporter) createConnection(ctx context.Context) (wrote bool, err error) {
	o := r.link.options
	g := control.Gateway{Type: o.Type, Namespace: o.Namespace, Name: o.Name, ClusterID: o.ClusterID}
	var uid types.UID
	if o.Type == networkingv1beta1.ConnectionServer {
		g.Kind = "GatewayServer"
		if server := r.link.servers.Only(); server != nil {
			uid = server.UID
		}
	} else {
		g.Kind = "GatewayClient"
		if client := r.link.gwClients.Only(); client != nil {
			uid = client.UID
		}
	}
	if uid == "" || r.mayNotCreate {
		return false, errNoConnection
	}
	c := control.ConnectionOf(g, networkingv1beta1.ConnectionStatus{})
	c.Spec.GatewayRef.UID = uid
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: c.APIVersion, Kind: g.Kind, Name: g.Name, UID: uid}}
	var after networkingv1beta1.Connection
	err = r.link.networking.Post().Namespace(c.Namespace).Resource("connections").Body(&c).Do(ctx).Into(&after)
	switch {
	case apierrors.IsForbidden(err):
		r.mayNotCreate = true
		return false, errNoConnection
	case apierrors.IsAlreadyExists(err): // the watch will show it
		return false, errNoConnection
	case err != nil:
		return false, fmt.Errorf("create Connection: %s", mirror.PlainError(err))
	}
	r.connections.Wrote(&after)
	return true, nil
}

// statusOf is what the Connection should say.
func statusOf(report control.Report, live *networkingv1beta1.Connection) networkingv1beta1.ConnectionStatus {
	want := report.ConnectionStatus()
	want.Conditions = slices.Clone(live.Status.Conditions)
	set := func(t networkingv1beta1.ConditionType, ok bool, yes, no networkingv1beta1.ConditionReason, message string) {
		c := metav1.Condition{Type: string(t), Status: metav1.ConditionTrue, Reason: string(yes), Message: message,
			ObservedGeneration: live.Generation, LastTransitionTime: metav1.NewTime(report.Time.UTC().Truncate(time.Second))}
		if !ok {
			c.Status, c.Reason = metav1.ConditionFalse, string(no)
		}
		meta.SetStatusCondition(&want.Conditions, c)
	}
	reason, message := appliedOf(report)
	set(networkingv1beta1.ConditionConfigurationApplied, reason == networkingv1beta1.ReasonApplied, reason, reason, message)
	switch peer := report.Peer; {
	case peer.Value == networkingv1beta1.Connected:
		set(networkingv1beta1.ConditionPeerAnswers, true, networkingv1beta1.ReasonPeerAnswers, "", "the peer's gateway answers")
	case peer.Silence.Reason != "":
		set(networkingv1beta1.ConditionPeerAnswers, false, "", peer.Silence.Reason, peer.Silence.Message)
	default:
		meta.RemoveStatusCondition(&want.Conditions, string(networkingv1beta1.ConditionPeerAnswers))
	}
	switch peer := report.Peer; {
	case peer.MTU == 0:
		meta.RemoveStatusCondition(&want.Conditions, string(networkingv1beta1.ConditionMTUMatches))
	case peer.MTUMismatch != "":
		set(networkingv1beta1.ConditionMTUMatches, false, "", networkingv1beta1.ReasonMTUMismatch, peer.MTUMismatch)
	default:
		set(networkingv1beta1.ConditionMTUMatches, true, networkingv1beta1.ReasonMTUMatches, "", fmt.Sprintf("both gateways have an MTU of %d", peer.MTU))
	}
	if peer := report.Peer; peer.Several != "" {
		set(networkingv1beta1.ConditionPeerUnique, false, "", networkingv1beta1.ReasonSeveralPeers, peer.Several)
	} else {
		meta.RemoveStatusCondition(&want.Conditions, string(networkingv1beta1.ConditionPeerUnique))
	}
	if peer := report.Peer; peer.LeftOut != "" {
		set(networkingv1beta1.ConditionAllTunnelsCarry, false, "", networkingv1beta1.ReasonTunnelsLeftOut, peer.LeftOut)
	} else {
		meta.RemoveStatusCondition(&want.Conditions, string(networkingv1beta1.ConditionAllTunnelsCarry))
	}
	return want
}

// maxMessage keeps a condition readable; a schema allows 32768 bytes.
const maxMessage = 2000

// appliedOf says whether the newest objects are in force, all of them.
func appliedOf(report control.Report) (reason networkingv1beta1.ConditionReason, message string) {
	switch {
	case len(report.Refused) > 0 && report.Generation == 0:
		message = "nothing is in force: " + report.Refused.Error()
	case len(report.Refused) > 0:
		message = "what was in force stays: " + report.Refused.Error()
	case len(report.Ignored) > 0:
		message = "in force but for: " + report.Ignored.Error()
	case report.Generation == 0:
		return networkingv1beta1.ReasonWaitingForObjects, "waiting for the objects of the peering"
	case !report.Kept.IsZero():
		return networkingv1beta1.ReasonWaitingForObjects, "in force are the objects as they were at " + report.Kept.UTC().Format(time.RFC3339) +
			": the gateway was started again since then, and cannot read all of them"
	case len(report.Missing) > 0:
		return networkingv1beta1.ReasonWaitingForObjects, "in force, but: " + report.Missing.Error()
	default:
		return networkingv1beta1.ReasonApplied, "the newest objects are in force"
	}
	message = text.Cut(message, maxMessage)
	return networkingv1beta1.ReasonRefused, message
}

const (
	// sameLatency times the interval is how long a latency stands that is about the same,
	// as long as that is within maxSameLatency: others take a Connection that is older
	// than two minutes for one that nobody keeps.
	sameLatency    = 10
	maxSameLatency = 100 * time.Second
	// noticeable is the least difference between two latencies that are not the same.
	noticeable = 2 * time.Millisecond
)

// due tells whether want should be written over what is there: at once what a
// person acts on, after the interval a latency that is another one, and seldom one
// that is about the same: of a thousand gateways these are most of the writes.
func due(live, want networkingv1beta1.ConnectionStatus, since, interval time.Duration) bool {
	none := health.FormatLatency(0)
	switch {
	case live.Value != want.Value, (live.Latency.Value == none) != (want.Latency.Value == none), live.Latency.Value == "":
		return true
	case !sameConditions(live.Conditions, want.Conditions):
		return true
	}
	if otherLatency(live.Latency.Value, want.Latency.Value) {
		return since >= interval
	}
	return since >= max(interval, min(sameLatency*interval, maxSameLatency)) && live.Latency != want.Latency
}

// otherLatency tells whether two latencies differ by more than half.
func otherLatency(a, b string) bool {
	x, xErr := time.ParseDuration(a)
	y, yErr := time.ParseDuration(b)
	if xErr != nil || yErr != nil {
		return a != b
	}
	low, high := min(x, y), max(x, y)
	return high-low >= noticeable && high > low+low/2
}

// sameConditions compares but for the times, which follow the rest.
func sameConditions(a, b []metav1.Condition) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		y := meta.FindStatusCondition(b, x.Type)
		if y == nil || y.Status != x.Status || y.Reason != x.Reason || y.Message != x.Message || y.ObservedGeneration != x.ObservedGeneration {
			return false
		}
	}
	return true
}
