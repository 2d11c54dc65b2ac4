package doctor

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// facts is everything that the checks judge.
type facts struct {
	version  string // of the program that looks
	now      time.Time
	clusters []*cluster // one or two
	peerings []*peering
}

// read is what was asked for, or why it could not be had.
type read[T any] struct {
	items []T
	err   error
}

// cluster is one cluster.
type cluster struct {
	name, origin, host string
	// err is why the cluster cannot be asked anything. Nothing else is known then.
	err error
	*survey.Cluster
	uid types.UID
	// denied are rights that the user lacks, as errors tell them: without those of
	// needed nothing can be judged, without those of wanted not everything.
	needed, wanted error
	// clockAhead is how far the API server's clock is ahead of this machine's; nil:
	// not known.
	clockAhead *time.Duration
	// crdNames are those of all CRDs; crds are ours, wantedCRDs what this version
	// wants them to be.
	crdNames   []string
	crds       read[apiextensionsv1.CustomResourceDefinition]
	wantedCRDs []apiextensionsv1.CustomResourceDefinition
	namespaces read[corev1.Namespace]
	nodes      read[corev1.Node]
	// apiService is the Service kubernetes: its address shows the service CIDR.
	apiService *corev1.Service
	// events are those of the namespaces of the installation and of the peerings,
	// the last of each kind first.
	events read[corev1.Event]
	// pods are those of the namespace of the installation, agents those of the node
	// agents.
	pods     read[corev1.Pod]
	agents   read[corev1.Pod]
	offloads offloads
	// shared are the Services that the cluster exports and imports.
	shared read[survey.SharedService]
}

// peering is a pair of ends.
type peering struct {
	// id is the ID of the remote cluster as the local one sees it.
	id string
	// local is this cluster's end, remote the other's: nil where nobody can look.
	local, remote *end
}

// ends are those that could be looked at.
func (p *peering) ends() []*end {
	if p.remote == nil {
		return []*end{p.local}
	}
	return []*end{p.local, p.remote}
}

// scope is what a check of these ends looks at.
func (p *peering) scope(ends ...*end) scope {
	s := scope{peer: p.id}
	for _, e := range ends {
		s.clusters = append(s.clusters, e.cluster.name)
	}
	return s
}

// by returns the ends by their role. Either is nil where nobody has it, or can
// look at it.
func (p *peering) by() (server, client *end) {
	for _, e := range p.ends() {
		switch {
		case e.gateway() == nil:
		case e.gateway().Role == networkingv1beta1.ConnectionServer:
			server = e
		default:
			client = e
		}
	}
	return server, client
}

// end is one end of a peering.
type end struct {
	cluster *cluster
	// id is the ID of the cluster at the other end.
	id string
	// peer is everything in this cluster about the other; nil: nothing.
	peer *survey.Peer

	tenants    read[authv1beta1.Tenant]   // of the namespace
	identities read[authv1beta1.Identity] // as well

	pods     read[corev1.Pod] // of the gateway
	policies read[networkingv1.NetworkPolicy]
	// lastLogs are the ends of the logs of containers that ended, by pod.
	lastLogs map[string]string
	// replicas are how many pods the gateway's Deployment is to have; nil: not known.
	replicas *int32
	// admitted: that Deployment says of no pod that it could not be made.
	admitted bool
	// service is that of a server; nil: none.
	service    *corev1.Service
	serviceErr error
	// templateErr is why the template cannot be had; nil: it is there.
	templateErr error
	// account are rights that the gateway lacks, nil: none; accountErr is why that
	// is not known.
	account    []string
	accountErr error

	// before and after are what the gateway said at two times; reportErr is why it
	// said nothing.
	before, after *survey.GatewayReport
	reportErr     error
	// alsoLeads are pods of the gateway beside the active one that forward, too.
	alsoLeads []string
	// clockAhead is how far the gateway's clock is ahead of this machine's.
	clockAhead *time.Duration
	probe      *probe
	probeErr   error
	// agents are what the agents of nodes said that have a problem, by node; nil: one was asked in vain.
	agents map[string]*survey.FabricReport
}

// gateway is this end's; nil: none.
func (e *end) gateway() *survey.Gateway {
	if e.peer == nil {
		return nil
	}
	return e.peer.Gateway
}

// mtu is that of the gateway's spec.
func (e *end) mtu() int {
	if g := e.gateway(); g != nil && g.MTU != 0 {
		return g.MTU
	}
	return defaultMTU
}

// packetSize is that of the largest packet for the peer: less than the MTU if the gateway has
// found that the path carries less.
func (e *end) packetSize() int {
	if e.probe != nil && e.probe.MTU != 0 {
		return min(e.mtu(), e.probe.MTU)
	}
	return e.mtu()
}

// unanswered tells whether the gateway pinged its peer in vain, just now. What the
// Connection says is up to ten seconds old.
func (e *end) unanswered() bool {
	return e.probe != nil && len(e.probe.Pings) > 0 && e.probe.Pings[0].Sent > 0 && e.probe.Pings[0].Received == 0
}

// connected tells whether the gateway says that the peer answers.
func (e *end) connected() bool {
	if e.unanswered() {
		return false
	}
	if e.after != nil {
		return e.after.Sync.Peer.Value == networkingv1beta1.Connected
	}
	return e.peer != nil && e.peer.Connection != nil && e.peer.Connection.Status.Value == networkingv1beta1.Connected
}

// activePod is the gateway pod that leads; nil: none.
func (e *end) activePod() *corev1.Pod {
	for i := range e.pods.items {
		p := &e.pods.items[i]
		if p.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue && p.DeletionTimestamp.IsZero() && p.Status.Phase == corev1.PodRunning {
			return p
		}
	}
	return nil
}

// ofLiqo tells whether the gateway's pods are Liqo's.
func (e *end) ofLiqo() bool {
	p := e.activePod()
	if p == nil && len(e.pods.items) > 0 {
		p = &e.pods.items[0]
	}
	return p != nil && survey.OfLiqo(&p.Spec)
}

// probe is what `gateway probe -o json` prints, as far as anybody needs it here.
type probe struct {
	MTU  int `json:"mtu"`
	Path struct {
		MTU   int `json:"mtu,omitempty"`
		Inner int `json:"inner,omitempty"`
	} `json:"path,omitzero"`
	Pings   []probePings `json:"pings"`
	Largest int          `json:"largest"`
	Limit   int          `json:"limit"`
}

// probePings is how the pings of one size fared.
type probePings struct {
	Size     int           `json:"size"`
	Sent     int           `json:"sent"`
	Received int           `json:"received"`
	Avg      time.Duration `json:"avgNanoseconds"`
}
