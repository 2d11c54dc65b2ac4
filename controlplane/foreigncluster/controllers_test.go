package foreigncluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// world is a control plane with the controller in it, under the roles that are shipped.
type world struct {
	*controlplanetest.Cluster
	t *testing.T
	// authenticates: the controllers of authentication run, too. Here only their Secrets are looked at.
	authenticates bool
	// offloads: those of offloading, too.
	offloads bool
}

func (w *world) run() (stop func()) {
	w.t.Helper()
	return w.RunManager(w.t, func(mgr ctrl.Manager) error {
		var secrets cache.Cache
		if w.authenticates {
			var err error
			if secrets, err = authentication.PeeringCache(mgr); err != nil {
				return err
			}
		}
		return SetupWithManager(mgr, secrets, w.offloads)
	})
}

// becomes waits until the status of a ForeignCluster is told so.
func (w *world) becomes(name string, lines ...string) *corev1beta1.ForeignCluster {
	w.t.Helper()
	o := new(corev1beta1.ForeignCluster)
	controlplanetest.Eventually(w.t, "ForeignCluster "+name, func(ctx context.Context) error {
		if err := w.Get(ctx, "", name, o); err != nil {
			return err
		}
		if diff := cmp.Diff(strings.Join(lines, "\n")+"\n", told(o.Status)); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	return o
}

func (w *world) goes(name string) {
	w.t.Helper()
	w.Gone(w.t, &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func of(id, name string, more ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: id}}
	for i := 0; i < len(more); i += 2 {
		m.Labels[more[i]] = more[i+1]
	}
	return m
}

func configuration(id string) *networkingv1beta1.Configuration {
	c := &networkingv1beta1.Configuration{ObjectMeta: of(id, id)}
	c.Spec.Remote.CIDR.Pod = networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.71.0.0/16"}, Scalar: true}
	c.Spec.Remote.CIDR.External = networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.72.0.0/16"}, Scalar: true}
	return c
}

var configured = []string{
	"Unknown    ", "networking true", "- NetworkConfigurationStatus Ready NetworkConfigurationPresence",
	"- NetworkGatewayPresence NotReady GatewayMissing", "- NetworkConnectionStatus NotReady ConnectionMissing",
}

// TestNetwork is a peering without authentication, from its first object to its last.
func TestNetwork(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), t: t}
	stop := w.run()
	w.Create(t, configuration("milan"))
	made := w.becomes("milan", configured...)
	if made.Spec.ClusterID != "milan" || made.Labels[networkingv1beta1.LabelRemoteClusterID] != "milan" {
		t.Errorf("%+v", made)
	}
	c := &networkingv1beta1.Connection{ObjectMeta: of("milan", "gw-milan"), Spec: networkingv1beta1.ConnectionSpec{Type: networkingv1beta1.ConnectionClient, GatewayRef: corev1.ObjectReference{Name: "milan"}}}
	w.Create(t, c)
	pending := append(configured[:4:4], "- NetworkConnectionStatus Pending ConnectionPending")
	w.becomes("milan", pending...)
	controlplanetest.EditStatus(t, w.Cluster, c, func(c *networkingv1beta1.Connection) { c.Status.Value = networkingv1beta1.Connected })
	up := append(configured[:4:4], "- NetworkConnectionStatus Established ConnectionEstablished")
	settled := w.becomes("milan", up...)

	t.Run("nothing to write", func(t *testing.T) {
		controlplanetest.EditStatus(t, w.Cluster, c, func(c *networkingv1beta1.Connection) { c.Status.Latency.Value = "12ms" })
		stop()
		controlplanetest.Settled(t, "foreigncluster", 1, func() { stop = w.run() })
		if now := w.becomes("milan", up...); now.ResourceVersion != settled.ResourceVersion {
			t.Errorf("a start writes: version %s, before %s", now.ResourceVersion, settled.ResourceVersion)
		}
	})
	t.Run("what a hand wrote", func(t *testing.T) {
		controlplanetest.EditStatus(t, w.Cluster, settled, func(o *corev1beta1.ForeignCluster) {
			o.Status.Role, o.Status.Modules.Networking.Conditions = corev1beta1.ConsumerRole, nil
		})
		w.becomes("milan", up...)
		w.Delete(t, settled)
		controlplanetest.Eventually(t, "it comes back", func(ctx context.Context) error {
			o := new(corev1beta1.ForeignCluster)
			if err := w.Get(ctx, "", "milan", o); err != nil || o.UID == settled.UID {
				return fmt.Errorf("%s: %w", o.UID, err)
			}
			return nil
		})
		w.becomes("milan", up...)
	})
	t.Run("one of a user", func(t *testing.T) {
		w.Create(t, &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "naples"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "naples"}})
		w.Create(t, &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "venice"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "other"}})
		w.Create(t, configuration("naples"))
		w.Create(t, configuration("venice"))
		w.becomes("naples", configured...)
		controlplanetest.Settled(t, "foreigncluster", 2, func() {
			w.Delete(t, configuration("naples"))
			w.Delete(t, configuration("venice"))
		})
		w.becomes("naples", "Unknown    ")
		venice := w.becomes("venice", "    ")
		controlplanetest.Edit(t, w.Cluster, venice, func(o *corev1beta1.ForeignCluster) { o.Finalizers = []string{corev1beta1.FinalizerAPIServerChecker} })
		w.Delete(t, venice)
		w.goes("venice")
	})
	t.Run("a label that is no ID", func(t *testing.T) {
		o := configuration("pisa")
		o.Labels[networkingv1beta1.LabelRemoteClusterID] = "Pisa_1"
		controlplanetest.Settled(t, "foreigncluster", 1, func() { w.Create(t, o) })
		var list corev1beta1.ForeignClusterList
		if err := w.Client.List(t.Context(), &list); err != nil || len(list.Items) != 2 {
			t.Errorf("%d ForeignClusters: %v", len(list.Items), err)
		}
	})
	t.Run("the last object", func(t *testing.T) {
		w.Delete(t, configuration("milan"))
		w.becomes("milan", "Unknown    ", "networking true", "- NetworkConfigurationStatus NotReady NetworkConfigurationMissing", up[3], up[4])
		stop()
		w.Delete(t, c) // while nobody looks
		w.run()
		w.goes("milan")
	})
}

// TestAuthentication is a peering in which the other cluster is a consumer, then also a provider.
func TestAuthentication(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), t: t, authenticates: true}
	w.ApplyManifest(t, "authentication", "authentication.yaml")
	stop := w.run()

	tenant := &authv1beta1.Tenant{ObjectMeta: of("milan", "milan"), Spec: authv1beta1.TenantSpec{ClusterID: "milan"}}
	w.Create(t, tenant)
	w.becomes("milan", "Consumer    ", "authentication true", "- AuthTenantStatus NotReady TenantNotReady")
	controlplanetest.EditStatus(t, w.Cluster, tenant, func(o *authv1beta1.Tenant) {
		o.Status.TenantNamespace, o.Status.Conditions = "default", is(metav1.ConditionTrue, "cluster milan may ask")
		o.Status.Conditions[0].Reason, o.Status.Conditions[0].LastTransitionTime = authv1beta1.ReasonTenantReady, metav1.Now()
	})
	w.becomes("milan", "Consumer default   ", "authentication true", "- AuthTenantStatus Ready TenantReady")

	// The provider is this cluster itself: what is asked is whether it lives.
	identity := &corev1.Secret{ObjectMeta: of("milan", "kubeconfig", authv1beta1.LabelIdentityType, string(authv1beta1.ControlPlaneIdentity)), Data: map[string][]byte{"kubeconfig": w.kubeconfig(w.Config.Host)}}
	identity.Annotations = map[string]string{authv1beta1.AnnotationRemoteTenantNamespace: "theirs"}
	w.Create(t, identity)
	const identityIsReady = "- AuthIdentityControlPlaneStatus Ready IdentityReady"
	// It is bound to nothing yet, and then has what a consumer has.
	denied := w.becomes("milan", "ConsumerAndProvider default theirs "+w.Config.Host+" ", "authentication true", "- AuthTenantStatus Ready TenantReady",
		"- AuthIdentityControlPlaneStatus NotReady IdentityDenied", "APIServerStatus Established APIServerReady")
	if says := denied.Status.Modules.Authentication.Conditions[1].Message; !strings.Contains(says, "denies access to its namespace theirs") {
		t.Error(says)
	}
	w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
	if out, err := w.Kubectl("create", "rolebinding", "of-rome", "-n", "theirs", "--clusterrole=liqo-remote-controlplane", "--serviceaccount=default:default"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stop()
	stop = w.run() // it asks at once
	both := []string{"ConsumerAndProvider default theirs " + w.Config.Host + " ", "authentication true", "- AuthTenantStatus Ready TenantReady", identityIsReady, "APIServerStatus Established APIServerReady"}
	settled := w.becomes("milan", both...)

	stop()
	controlplanetest.Settled(t, "foreigncluster", 2, func() { stop = w.run() })
	if now := w.becomes("milan", both...); now.ResourceVersion != settled.ResourceVersion {
		t.Errorf("a start writes: version %s, before %s", now.ResourceVersion, settled.ResourceVersion)
	}

	const nobody = "https://127.0.0.1:1"
	controlplanetest.Edit(t, w.Cluster, identity, func(s *corev1.Secret) { s.Data["kubeconfig"] = w.kubeconfig(nobody) })
	away := w.becomes("milan", "ConsumerAndProvider default theirs "+nobody+" ", both[1], both[2], both[3], "APIServerStatus Error APIServerNotReady")
	if says := away.Status.Conditions[0].Message; !strings.Contains(says, "connection refused") {
		t.Error(says)
	}
	w.Delete(t, tenant)
	w.becomes("milan", "Provider default theirs "+nobody+" ", "authentication true", identityIsReady, "APIServerStatus Error APIServerNotReady")

	// Without the controllers of authentication nothing is left to show.
	stop()
	w.authenticates = false
	w.run()
	w.goes("milan")
	if err := w.Get(t.Context(), "default", "kubeconfig", new(corev1.Secret)); apierrors.IsNotFound(err) {
		t.Error("the Secret is gone, too")
	}
}

// TestOffloading follows a virtual node, which need not be labelled, and its Node.
func TestOffloading(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), t: t, offloads: true}
	for _, file := range []string{"offloading.yaml", "virtual-kubelet.yaml"} {
		w.ApplyManifest(t, "offloading", file)
	}
	stop := w.run()
	v := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "north"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
	w.Create(t, v)
	w.becomes("milan", "Provider    ", "offloading true", "- OffloadingVirtualNodeStatus NotReady VirtualNodesNotReady", "- OffloadingNodeStatus NotReady NodesNotReady")
	controlplanetest.EditStatus(t, w.Cluster, v, func(v *offloadingv1beta1.VirtualNode) {
		v.Status.Conditions = []offloadingv1beta1.VirtualNodeCondition{{Type: offloadingv1beta1.VirtualNodeVirtualKubelet, Status: running, LastTransitionTime: metav1.Now()}}
	})
	w.becomes("milan", "Provider    ", "offloading true", "- OffloadingVirtualNodeStatus Ready VirtualNodesReady", "- OffloadingNodeStatus NotReady NodesNotReady")
	n := &corev1.Node{ObjectMeta: of("milan", "north")}
	n.Namespace = ""
	w.Create(t, n)
	controlplanetest.EditStatus(t, w.Cluster, n, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	ready := []string{"Provider    ", "offloading true", "- OffloadingVirtualNodeStatus Ready VirtualNodesReady", "- OffloadingNodeStatus Ready NodesReady"}
	settled := w.becomes("milan", ready...)
	stop()
	controlplanetest.Settled(t, "foreigncluster", 1, func() { stop = w.run() })
	if now := w.becomes("milan", ready...); now.ResourceVersion != settled.ResourceVersion {
		t.Errorf("a start writes: version %s, before %s", now.ResourceVersion, settled.ResourceVersion)
	}
	s := &authv1beta1.ResourceSlice{ObjectMeta: of("milan", "north", authv1beta1.LabelReplication, "true", authv1beta1.LabelReplicationDestination, "milan")}
	w.Create(t, s)
	answer := func(c authv1beta1.ResourceSliceCondition) {
		c.Type, c.LastTransitionTime = authv1beta1.SliceResources, metav1.Now()
		controlplanetest.EditStatus(t, w.Cluster, s, func(s *authv1beta1.ResourceSlice) { s.Status.Conditions = []authv1beta1.ResourceSliceCondition{c} })
	}
	answer(authv1beta1.ResourceSliceCondition{Status: authv1beta1.SliceDenied, Reason: authv1beta1.ReasonTenantDrained})
	w.becomes("milan", "Provider    ", "offloading true", "- OffloadingVirtualNodeStatus Ready VirtualNodesReady", "- OffloadingNodeStatus NotReady TenantDrained")
	answer(authv1beta1.ResourceSliceCondition{Status: authv1beta1.SliceAccepted})
	w.becomes("milan", ready...)
	w.Delete(t, v)
	w.goes("milan")
	stop()
}

// kubeconfig is one for this cluster, at another address.
func (w *world) kubeconfig(server string) []byte {
	w.t.Helper()
	as := w.ServiceAccount("default", "default")
	k := clientcmdapi.NewConfig()
	k.Clusters["a"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: as.CAData}
	k.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: as.BearerToken}
	k.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	k.CurrentContext = "a"
	text, err := clientcmd.Write(*k)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}
