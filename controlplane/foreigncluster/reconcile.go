package foreigncluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// reconciler keeps the ForeignCluster of each peering.
type reconciler struct {
	client.Client
	// secrets sees the Secrets of peerings; nil: the controllers of authentication do not run.
	secrets client.Reader
	// offloads: the controllers of offloading run.
	offloads bool
	asker    *asker
	now      func() metav1.Time
}

// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;gatewayservers;gatewayclients;connections,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch

// Reconcile looks at everything about one remote cluster; the name of the request is its ID.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if len(validation.IsDNS1123Label(req.Name)) > 0 {
		return ctrl.Result{}, nil // the ID of no cluster: the label is wrong, and who looks at the object says so
	}
	live := new(corev1beta1.ForeignCluster)
	if err := r.Get(ctx, req.NamespacedName, live); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	f, err := r.gather(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	f.APIServer = r.asker.answerOf(req.Name, f.kubeconfig(), f.remoteNamespace())
	ours := live.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue
	switch {
	case !live.DeletionTimestamp.IsZero():
		return ctrl.Result{}, apply.RemoveFinalizers(ctx, r.Client, live, corev1beta1.FinalizerAPIServerChecker)
	case !f.Exists() && live.UID == "":
		return ctrl.Result{}, nil
	case !f.Exists() && ours:
		log.FromContext(ctx).Info("nothing is left of the peering", "clusterID", req.Name)
		return ctrl.Result{}, apply.Delete(ctx, r.Client, live)
	case live.UID == "" || ours:
		// Its event has the status written.
		if wrote, err := apply.Object(ctx, r.Client, nil, wanted(req.Name)); wrote || err != nil {
			return ctrl.Result{}, err
		}
	case string(live.Spec.ClusterID) != req.Name:
		return ctrl.Result{}, nil // a user's, about another cluster
	}
	f.Before, f.Generation, f.Now = live.Status, live.Generation, r.now()
	wrote, err := apply.Status(ctx, r.Client, live, func() { live.Status = Build(f) })
	if wrote {
		log.FromContext(ctx).V(1).Info("status", "clusterID", req.Name, "role", live.Status.Role)
	}
	return ctrl.Result{RequeueAfter: f.untilExpiry()}, client.IgnoreNotFound(err)
}

// wanted is a ForeignCluster without its status.
func wanted(id string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{
			networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: id,
		}},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: corev1beta1.ClusterID(id)},
	}
}

// gather reads what is labelled with the ID of a cluster.
func (r *reconciler) gather(ctx context.Context, id string) (Facts, error) {
	var (
		configurations networkingv1beta1.ConfigurationList
		servers        networkingv1beta1.GatewayServerList
		clients        networkingv1beta1.GatewayClientList
		connections    networkingv1beta1.ConnectionList
		deployments    appsv1.DeploymentList
		tenants        authv1beta1.TenantList
		identities     authv1beta1.IdentityList
		secrets        corev1.SecretList
		virtual        offloadingv1beta1.VirtualNodeList
		nodes          corev1.NodeList
		asked          authv1beta1.ResourceSliceList
	)
	lists := []client.ObjectList{&configurations, &servers, &clients, &connections, &deployments}
	if r.secrets != nil {
		lists = append(lists, &tenants, &identities)
		if err := r.secrets.List(ctx, &secrets, client.UnsafeDisableDeepCopy, client.MatchingLabels{
			networkingv1beta1.LabelRemoteClusterID: id, authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity),
		}); err != nil {
			return Facts{}, err
		}
	}
	if r.offloads {
		lists = append(lists, &virtual, &nodes, &asked)
	}
	for _, l := range lists {
		if err := r.List(ctx, l, client.UnsafeDisableDeepCopy, client.MatchingFields{byCluster: id}); err != nil {
			return Facts{}, err
		}
	}
	return Facts{
		ID: id, Configurations: configurations.Items, Servers: servers.Items, Clients: clients.Items, Connections: connections.Items,
		Deployments: deployments.Items, Tenants: tenants.Items, Identities: identities.Items, Secrets: secrets.Items,
		VirtualNodes: virtual.Items, Nodes: nodes.Items, Slices: asked.Items,
	}, nil
}
