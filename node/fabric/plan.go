package fabric

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// Objects is one state of everything that a node's network is built from. Of
// objects that contradict each other the one that stands first in its list wins:
// from files it is the order of the files, from an API server that of age.
type Objects struct {
	manifests.Objects
	// InCluster says that the objects come from an API server. There they have
	// many authors: what cannot be used is left out, and the rest goes on. A
	// directory has one author, who is told of a mistake and mends it.
	InCluster bool
}

// Facts are what a plan depends on beside the objects.
type Facts struct {
	// NodeName is the InternalNode that this node is.
	NodeName string
	// Kind is what links are made of.
	Kind hostnet.Kind
	// Port is the UDP port of the tunnels.
	Port uint16
	// RulePriority is that of hostnet.Desired.
	RulePriority uint32
	// HideAll is that of hostnet.Translation.
	HideAll bool
	// Paths is how the kernel sends to each of Underlay's gateways, and NoPath why
	// it does not.
	Paths  map[netip.Addr]hostnet.Path
	NoPath map[netip.Addr]string
	// Connected is what this node reaches without a router.
	Connected []hostnet.Network
	// Reserved are prefixes that no tunnel may take.
	Reserved []Reserved
	// InForce are the links that are there and ours.
	InForce []hostnet.Link
}

// Reserved is a prefix that the node reaches in its own way.
type Reserved struct {
	Prefix netip.Prefix
	// What is a name for it in a message, as in "the API server".
	What string
}

// Plan is what the objects ask of a node.
type Plan struct {
	Desired hostnet.Desired
	// Fabrics are the InternalFabrics of Desired.Links.
	Fabrics []hostnet.PredecessorFabric
	// NodeIP is what InternalNode.status should say.
	NodeIP networkingv1beta1.NodeIP
	// Node is the InternalNode; nil: there is none.
	Node *networkingv1beta1.InternalNode
	// Waiting are objects that others have to make or complete first.
	Waiting manifests.Problems
	// Ignored are objects of a cluster that cannot be used. What was in force of
	// them stays.
	Ignored manifests.Problems
	// HostsWaiting and HostsIgnored are the same of single hosts with an address of
	// the external CIDR, which anybody in a cluster can ask for.
	HostsWaiting, HostsIgnored manifests.Problems
	// Unreachable are gateways to which the kernel has no route.
	Unreachable manifests.Problems
	// Untranslated says why addresses are not translated as they should be.
	Untranslated manifests.Problems
	// OtherFamily says what the pods of this cluster have no addresses for; it is
	// among the warnings, too.
	OtherFamily manifests.Problems
	// Unrouted are tunnels that nothing leads into; they are among the warnings, too.
	Unrouted manifests.Problems
	// Warnings are what else the authors of the objects should know.
	Warnings manifests.Problems
	// Concerns is what is said above of a link or of the one that it should
	// become, by the owner of the link.
	Concerns map[string]string
}

// Build decides what a node's network should hold. It is pure: the same objects
// and facts give the same plan. An error, of type manifests.Problems, refuses a
// directory as a whole; of a refused state only the warnings are there.
//
//	situation                                      from files           from a cluster
//	---------------------------------------------------------------------------------------------------
//	no InternalNode of this name                   refused              waits; its links stay
//	InternalNode without an address                refused              waits; its links stay
//	GeneveTunnel without its InternalFabric        waits; no link       the same
//	InternalFabric without gatewayIP or address    refused              waits; the link stays
//	no route to the gateway                        link; "unreachable"  the same
//	an address, a prefix, a name, a VNI or an MTU  refused              left out; the link stays
//	that cannot be
//	gateway is this node itself                    refused              left out; the link stays
//	node's and gateway's address of two families   refused              left out; the link stays
//	IPv4 behind an IPv6 internal network           refused              left out; the link stays
//	MTU and encapsulation above the path's MTU     refused              left out; the link stays
//	a prefix that covers the pods or Services of   refused              left out; the link stays
//	this cluster, a gateway, this node, or a
//	network that it is in
//	VNI or link name of another tunnel             refused              the first one has it
//	a prefix of another tunnel                     refused              that prefix is left out
//	no remoteCIDRs                                 link; warning        the same
//	no pod CIDR of this cluster known              no translation;      the same
//	                                               warning
//	no external CIDR of this cluster               nodes keep their     the same
//	                                               address; warning
//	IP to masquerade without an address yet        waits                the same
//	IP that cannot be mapped                       refused              left out
//	object that is being deleted                   cannot be            counts as gone
//
// "The link stays" is hostnet.Desired.Keep: nothing of what is in force changes,
// and what was never in force does not come.
func Build(o Objects, f Facts) (Plan, error) {
	b := builder{objects: o, facts: f}
	b.plan.Desired.RulePriority = f.RulePriority
	b.plan.Concerns = make(map[string]string)
	b.locals()
	b.node()
	b.tunnels()
	b.links()
	b.nodeIP()
	b.translation()
	if len(b.problems) > 0 {
		return Plan{Warnings: b.plan.Warnings}, b.problems
	}
	return b.plan, nil
}

// builder holds what the steps of Build share.
type builder struct {
	objects  Objects
	facts    Facts
	plan     Plan
	problems manifests.Problems

	nodeRef  manifests.Ref
	address  netip.Addr // the node's own in the tunnels; invalid: not known
	local    localCIDRs
	underlay []netip.Addr // of gateways and of this node: sorted
	wanted   []*candidate
	accepted []*candidate // of wanted
	kept     []*candidate // with the links that are there
}

// exclude reports what cannot be used. From files that refuses the state.
func (b *builder) exclude(p manifests.Problem) {
	if b.objects.InCluster {
		b.plan.Ignored = append(b.plan.Ignored, p)
		return
	}
	b.problems = append(b.problems, p)
}

// excludeHost is exclude for a host with an address of the external CIDR.
func (b *builder) excludeHost(p manifests.Problem) {
	if b.objects.InCluster {
		b.plan.HostsIgnored = append(b.plan.HostsIgnored, p)
		return
	}
	b.problems = append(b.problems, p)
}

// lack reports what somebody else still has to write: in a directory nobody will.
func (b *builder) lack(p manifests.Problem) {
	if b.objects.InCluster {
		b.plan.Waiting = append(b.plan.Waiting, p)
		return
	}
	b.problems = append(b.problems, p)
}

func (b *builder) warn(p manifests.Problem) { b.plan.Warnings = append(b.plan.Warnings, p) }

// nameOf is an object as a person would call it.
func nameOf(r manifests.Ref) string { return r.Kind + " " + key(r.Meta) }

// key is a name with its namespace, if it has one.
func key(m *metav1.ObjectMeta) string {
	if m.Namespace == "" {
		return m.Name
	}
	return m.Namespace + "/" + m.Name
}

// node finds the InternalNode that this node is.
func (b *builder) node() {
	var names []string
	for _, n := range b.objects.InternalNodes {
		names = append(names, n.Object.Name)
		if n.Object.Name == b.facts.NodeName {
			b.nodeRef = manifests.RefTo("InternalNode", n, &n.Object.ObjectMeta)
			b.plan.Node = n.Object
		}
	}
	if b.plan.Node == nil {
		b.unknownNode(names)
		return
	}
	path := field.NewPath("spec", "interface", "node", "ip")
	s := string(b.plan.Node.Spec.Interface.Node.IP)
	if s == "" {
		b.lack(b.nodeRef.Problem(path, "is not given yet: the node's own address in the tunnels"))
		return
	}
	a, why := manifests.ParseAddr(s)
	if why != "" {
		b.exclude(b.nodeRef.Problem(path, "%q %s", s, why))
		return
	}
	b.address = a
}

// maxNames is how many names are worth reading.
const maxNames = 10

func (b *builder) unknownNode(names []string) {
	object := "InternalNode " + b.facts.NodeName
	if b.objects.InCluster {
		b.lack(manifests.Problem{Object: object, Reason: "does not exist: the controllers make it for every Node; " +
			"if they run, compare --node-name with the names of `kubectl get nodes`"})
		return
	}
	slices.Sort(names)
	have := "there is none at all"
	if len(names) > 0 {
		have = "there are: " + enumerate(names)
	}
	b.lack(manifests.Problem{Object: object, Reason: "does not exist, " + have + "; set --node-name to the name of this node's InternalNode, or add one"})
}

// enumerate joins names, the first of many.
func enumerate(names []string) (out string) {
	for i, n := range names {
		switch {
		case i == maxNames:
			return fmt.Sprintf("%s and %d more", out, len(names)-maxNames)
		case i > 0:
			out += ", "
		}
		out += n
	}
	return out
}

// Underlay returns the addresses of the gateways that have a tunnel to a node:
// those whose paths Build wants to know.
func Underlay(o Objects, nodeName string) (out []netip.Addr) {
	fabrics := indexFabrics(o)
	for _, t := range o.GeneveTunnels {
		if t.Object.Spec.InternalNodeRef.Name != nodeName {
			continue
		}
		if i, ok := fabrics.of(t.Object); ok {
			if a, why := manifests.ParseAddr(string(o.InternalFabrics[i].Object.Spec.GatewayIP)); why == "" {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
