package gatewaydeploy

import (
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Facts is what is known of a gateway and what belongs to it. Objects that do not
// exist are nil.
type Facts struct {
	Gateway *gateway
	Options Options

	// Rival is the kind of the gateway of the same name that was there first and
	// has this one's Deployment, Secret and so on; empty if there is none.
	Rival string

	// Secret is the one that is to be used: that of spec.secretRef, or the generated one.
	Secret *corev1.Secret
	// Generated is the one that was generated, if another is to be used.
	Generated *corev1.Secret
	// KeysIn names a pod that works with the keys of a Secret that was deleted.
	KeysIn string
	// OtherSecrets are labelled as keys for the same peer, and nobody owns them.
	OtherSecrets []string
	// PublicKeys are those of the peer.
	PublicKeys []networkingv1beta1.PublicKey

	// Account is the service account of the pods.
	Account *corev1.ServiceAccount
	// ForeignAccount says that somebody else made it.
	ForeignAccount bool
	// Bindings and ClusterBindings are those labelled with the gateway's name.
	Bindings        []rbacv1.RoleBinding
	ClusterBindings []rbacv1.ClusterRoleBinding

	Deployment     *appsv1.Deployment
	Service        *corev1.Service
	MetricsService *corev1.Service
	// Monitors says that the cluster has the kind ServiceMonitor.
	Monitors   bool
	Monitor    *unstructured.Unstructured
	Connection *networkingv1beta1.Connection
	Lease      *coordinationv1.Lease
	// HolderGone says that the pod that holds the Lease has ended, or stopped while
	// another one stands by.
	HolderGone bool
	// HolderRestarts says that its container has just ended and is being started again.
	HolderRestarts bool
	Pods           []corev1.Pod
	// Nodes are those on which the pods are.
	Nodes []corev1.Node
	// Now is when all this was read.
	Now metav1.Time

	// NetworkPolicy and DisruptionBudget are those of the gateway's name.
	NetworkPolicy    *networkingv1.NetworkPolicy
	DisruptionBudget *policyv1.PodDisruptionBudget
	// NodePrefixes hold the addresses of all nodes.
	NodePrefixes []netip.Prefix
	// NodesUnmatched says that the CNI does not know nodes by their addresses.
	NodesUnmatched bool
}

// Plan is what follows from the Facts.
type Plan struct {
	// Refused are objects that are not made, because their spec asks for more than may
	// be given, and why.
	Refused []refusal
	// Delete goes first: a binding to another role is in the way of its successor.
	Delete []client.Object
	// Objects are to be as they are here, in this order.
	Objects []client.Object
	// AnyPort is the Service as it is to be if a node port that it had last, for which
	// it asks among Objects, is refused. It is nil if it asks for no such port.
	AnyPort *corev1.Service
	// LabelSecret is a patch of the Secret's metadata with the labels that it lacks.
	LabelSecret map[string]any
	// Label and Unlabel name pods that get or lose the mark of the active one.
	Label, Unlabel []string
	// BeginConnection writes the first status of the Connection. All others are the gateway's.
	BeginConnection bool
	// ReleaseLease takes the Lease from a holder that has ended.
	ReleaseLease bool

	Endpoint         *networkingv1beta1.Endpoint
	InternalEndpoint *networkingv1beta1.InternalEndpoint
	Keys             *corev1.ObjectReference
	PublicKey        []byte
	PublicKeyTime    metav1.Time
	Conditions       []metav1.Condition
	// Notes say what else the user should know. They go into the condition Deployed.
	Notes []string

	// Recheck is when to look again for what no watch shows; zero is never.
	Recheck time.Duration
}

// recheckSecret is how soon a Secret is seen that has no label yet: only labelled
// ones are watched.
const recheckSecret = 5 * time.Second

// recheckKind is how soon it is seen that the Prometheus operator was installed.
const recheckKind = 10 * time.Minute

// Build decides what is to be done about a gateway.
//
//	situation                          children                         condition
//	-----------------------------------------------------------------------------------------------
//	name taken by the other kind       none                             Deployed       DuplicateGateway
//	keys missing or bad                all; pods wait for the Secret    KeysReady      SecretNotFound, SecretInvalid
//	generated keys deleted, but in use all; no new keys until asked for KeysReady      SecretDeleted
//	two Secrets, none chosen           all, with the generated one      KeysReady      SecretAmbiguous
//	peer's key missing or bad          all                              PeerKeyReady   PeerKey...
//	no pod ready                       all                              Deployed       DeploymentNotReady
//	a spec with what is not allowed    the others                       Deployed       ObjectRefused
//	an account that is not for it      none that names the account      Deployed       ObjectRefused
//	refused by the API server, or      the others                       Deployed       ObjectRefused (reconcile.go)
//	  of somebody else
//	no pod leads                       all; last endpoints stay         EndpointReady  WaitingForGatewayPod
//	node of a NodePort not ready       all; last endpoint stays         EndpointReady  NodeNotReady
//	load balancer without address      all; last endpoint stays         EndpointReady  WaitingForLoadBalancer
//	Service of another type            all but the Service              EndpointReady  ServiceTypeUnsupported
func Build(f Facts) Plan {
	if f.Rival != "" {
		return Plan{Conditions: []metav1.Condition{f.Gateway.condition(networkingv1beta1.ConditionDeployed, false,
			networkingv1beta1.ReasonDuplicateGateway,
			fmt.Sprintf("%s %s is older, and its objects have the same names: delete or rename one of the two",
				f.Rival, f.Gateway.GetName()))}}
	}
	var p Plan
	own := f.keys(&p)
	f.peerKey(&p, own)
	f.roles(&p)
	f.connection(&p)
	f.lease(&p)
	f.service(&p)
	f.metrics(&p)
	f.networkPolicy(&p)
	f.disruptionBudget(&p)
	f.deployment(&p)
	active := f.active(&p)
	f.endpoints(&p, active)
	return p
}

// condition is one of this gateway at its present generation.
func (g *gateway) condition(t networkingv1beta1.ConditionType, ok bool, r networkingv1beta1.ConditionReason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: string(t), Status: status, Reason: string(r), Message: message, ObservedGeneration: g.GetGeneration()}
}

// say adds a condition.
func (f *Facts) say(p *Plan, t networkingv1beta1.ConditionType, ok bool, r networkingv1beta1.ConditionReason, format string, args ...any) {
	p.Conditions = append(p.Conditions, f.Gateway.condition(t, ok, r, fmt.Sprintf(format, args...)))
}

// recheck looks again after d at the latest.
func (p *Plan) recheck(d time.Duration) {
	if p.Recheck == 0 || d < p.Recheck {
		p.Recheck = d
	}
}

// meta is that of an object of the gateway, which goes with its owner.
func (f *Facts) meta(name string, owner metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: f.Gateway.GetNamespace(), Labels: f.labels(), OwnerReferences: []metav1.OwnerReference{owner},
	}
}

// labels are those of everything that is made for the gateway.
func (f *Facts) labels() map[string]string {
	l := map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}
	if id := f.remoteClusterID(); id != "" {
		l[networkingv1beta1.LabelRemoteClusterID] = id
	}
	return l
}

// gatewayLabels lead from an object back to the gateway.
func (f *Facts) gatewayLabels() map[string]string {
	return map[string]string{
		networkingv1beta1.LabelGatewayName:      f.Gateway.GetName(),
		networkingv1beta1.LabelGatewayNamespace: f.Gateway.GetNamespace(),
	}
}

func (f *Facts) remoteClusterID() string {
	return f.Gateway.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
}

// ownedBy is a reference by which garbage collection finds the owner.
//
// It does not block the deletion of the owner: some clusters allow that only to
// those who may set finalizers on it, and nothing here needs the order.
func ownedBy(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: new(true)}
}
