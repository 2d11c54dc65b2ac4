package foreigncluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/credentialtest"
)

var (
	earlier = metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	now     = metav1.NewTime(earlier.Add(time.Hour))
)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: earlier}
}

func deployment(gateway string, ready, unavailable int32) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: named("tenant", "gw-"+gateway), Status: appsv1.DeploymentStatus{ReadyReplicas: ready, UnavailableReplicas: unavailable}}
	d.Labels = map[string]string{networkingv1beta1.LabelGatewayName: gateway, networkingv1beta1.LabelGatewayNamespace: "tenant"}
	return d
}

func connection(v networkingv1beta1.ConnectionValue) []networkingv1beta1.Connection {
	return []networkingv1beta1.Connection{{ObjectMeta: named("tenant", "gw-milan"), Status: networkingv1beta1.ConnectionStatus{Value: v}}}
}

func is(status metav1.ConditionStatus, message string) []metav1.Condition {
	return []metav1.Condition{{Type: authv1beta1.ConditionReady, Status: status, Message: message}}
}

// peered are the facts of a peering in which everything is well, both ways.
func peered() Facts {
	return Facts{
		ID: "milan", Now: now,
		Configurations: []networkingv1beta1.Configuration{{ObjectMeta: named("tenant", "milan")}},
		Servers:        []networkingv1beta1.GatewayServer{{ObjectMeta: named("tenant", "milan")}},
		Deployments:    []appsv1.Deployment{deployment("milan", 1, 0), deployment("other", 0, 1)},
		Connections:    connection(networkingv1beta1.Connected),
		Tenants: []authv1beta1.Tenant{{ObjectMeta: named("tenant", "milan"), Status: authv1beta1.TenantStatus{
			TenantNamespace: "tenant", Conditions: is(metav1.ConditionTrue, "cluster milan may ask"),
		}}},
		Identities: []authv1beta1.Identity{
			{ObjectMeta: named("tenant", "resourceslice-a"), Spec: authv1beta1.IdentitySpec{Type: authv1beta1.ResourceSliceIdentity}},
			{
				ObjectMeta: named("tenant", "controlplane-milan"),
				Spec: authv1beta1.IdentitySpec{Type: authv1beta1.ControlPlaneIdentity, Namespace: new("theirs"),
					AuthParams: authv1beta1.AuthParams{APIServer: "https://milan:6443", ProxyURL: new("http://proxy:8118")}},
				Status: authv1beta1.IdentityStatus{Conditions: is(metav1.ConditionTrue, "Secret a")},
			},
		},
		APIServer: &Answer{},
	}
}

// told is a status in few words.
func told(s corev1beta1.ForeignClusterStatus) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Role, s.TenantNamespace.Local, s.TenantNamespace.Remote, s.APIServerURL, s.ForeignProxyURL)
	conditions := func(name string, enabled bool, cs []corev1beta1.Condition) {
		if !enabled && len(cs) == 0 {
			return
		}
		fmt.Fprintln(&b, name, enabled)
		for _, c := range cs {
			fmt.Fprintln(&b, "-", c.Type, c.Status, c.Reason)
		}
	}
	conditions("networking", s.Modules.Networking.Enabled, s.Modules.Networking.Conditions)
	conditions("authentication", s.Modules.Authentication.Enabled, s.Modules.Authentication.Conditions)
	conditions("offloading", s.Modules.Offloading.Enabled, s.Modules.Offloading.Conditions)
	for _, c := range s.Conditions {
		fmt.Fprintln(&b, c.Type, c.Status, c.Reason)
	}
	return b.String()
}

func networkOnly(f *Facts) { f.Tenants, f.Identities, f.APIServer = nil, nil, nil }
func identityOnly(f *Facts) {
	*f = Facts{ID: f.ID, Now: f.Now, Tenants: f.Tenants, Identities: f.Identities, APIServer: f.APIServer}
}

const running = offloadingv1beta1.VirtualNodeRunning

// virtual adds a VirtualNode with the statuses of its conditions, and a Node.
func virtual(f *Facts, name string, process, node offloadingv1beta1.VirtualNodeConditionStatus, ready bool) {
	v := offloadingv1beta1.VirtualNode{ObjectMeta: named("tenant", name)}
	for of, status := range map[offloadingv1beta1.VirtualNodeConditionType]offloadingv1beta1.VirtualNodeConditionStatus{
		offloadingv1beta1.VirtualNodeVirtualKubelet: process, offloadingv1beta1.VirtualNodeNode: node,
	} {
		if status != "" {
			v.Status.Conditions = append(v.Status.Conditions, offloadingv1beta1.VirtualNodeCondition{Type: of, Status: status, Message: "so it is"})
		}
	}
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if ready {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	f.VirtualNodes, f.Nodes = append(f.VirtualNodes, v), append(f.Nodes, n)
}

// answered are a ResourceSlice that the provider has accepted, and one that it has denied.
func answered(reason string) []authv1beta1.ResourceSlice {
	of := func(name string, status authv1beta1.ResourceSliceConditionStatus, reason string) authv1beta1.ResourceSlice {
		s := authv1beta1.ResourceSlice{ObjectMeta: named("tenant", name), Spec: authv1beta1.ResourceSliceSpec{ConsumerClusterID: new(authv1beta1.ClusterID("rome"))}}
		s.Status.Conditions = []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: status, Reason: reason}}
		return s
	}
	return []authv1beta1.ResourceSlice{of("a", authv1beta1.SliceAccepted, ""), of("b", authv1beta1.SliceDenied, reason)}
}

// TestOffloadingSaysWhy: of what is not ready the first by name is told, in the order of the names, with the reason.
func TestOffloadingSaysWhy(t *testing.T) {
	f := Facts{ID: "milan", Now: now}
	virtual(&f, "c", offloadingv1beta1.VirtualNodeCreating, "", false)
	virtual(&f, "b", offloadingv1beta1.VirtualNodeCreating, "", false)
	virtual(&f, "a", running, running, true)
	var got []string
	for _, c := range Build(f).Modules.Offloading.Conditions {
		got = append(got, c.Message)
	}
	want := []string{"VirtualNode tenant/b is not ready: so it is", "Node b is not ready: no process has looked at it yet"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.Slices = answered(authv1beta1.ReasonTenantDrained)
	if m := Build(f).Modules.Offloading.Conditions[1].Message; !strings.Contains(m, "the administrators of cluster milan can end this with 'liqoctl activate tenant rome'") {
		t.Error(m)
	}
}

func TestBuild(t *testing.T) {
	const (
		networkIsWell = "networking true\n- NetworkConfigurationStatus Ready NetworkConfigurationPresence\n- NetworkGatewayPresence Ready GatewayPresence\n" +
			"- NetworkGatewayServerStatus Ready GatewaysReady\n- NetworkConnectionStatus Established ConnectionEstablished\n"
		identityIsWell = "- AuthIdentityControlPlaneStatus Ready IdentityReady\n"
		tenantIsWell   = "- AuthTenantStatus Ready TenantReady\n"
		apiServer      = "APIServerStatus Established APIServerReady\n"
		urls           = "https://milan:6443 http://proxy:8118\n"
	)
	for _, c := range []struct {
		name   string
		change func(*Facts)
		want   string
	}{
		{"everything", func(*Facts) {}, "ConsumerAndProvider tenant theirs " + urls + networkIsWell + "authentication true\n" + tenantIsWell + identityIsWell + apiServer},
		{"a network", networkOnly, "Unknown    \n" + networkIsWell},
		{"a Configuration alone", func(f *Facts) {
			networkOnly(f)
			f.Servers, f.Connections = nil, nil
		}, "Unknown    \nnetworking true\n- NetworkConfigurationStatus Ready NetworkConfigurationPresence\n- NetworkGatewayPresence NotReady GatewayMissing\n- NetworkConnectionStatus NotReady ConnectionMissing\n"},
		{"a client that has no pod yet, and no Configuration", func(f *Facts) {
			networkOnly(f)
			f.Configurations, f.Servers, f.Deployments = nil, nil, nil
			f.Clients = []networkingv1beta1.GatewayClient{{ObjectMeta: named("tenant", "milan")}}
			f.Connections = connection("")
		}, "Unknown    \nnetworking true\n- NetworkConfigurationStatus NotReady NetworkConfigurationMissing\n- NetworkGatewayPresence Ready GatewayPresence\n" +
			"- NetworkGatewayClientStatus NotReady GatewaysNotReady\n- NetworkConnectionStatus Pending ConnectionPending\n"},
		{"one of two pods, no connection", func(f *Facts) {
			networkOnly(f)
			f.Deployments = []appsv1.Deployment{deployment("milan", 1, 1)}
			f.Connections = connection(networkingv1beta1.ConnectionError)
		}, "Unknown    \nnetworking true\n- NetworkConfigurationStatus Ready NetworkConfigurationPresence\n- NetworkGatewayPresence Ready GatewayPresence\n" +
			"- NetworkGatewayServerStatus SomeNotReady GatewaysSomeNotReady\n- NetworkConnectionStatus Error ConnectionError\n"},
		{"a Deployment of a gateway elsewhere", func(f *Facts) {
			networkOnly(f)
			f.Deployments[0].Namespace = "other"
		}, strings.Replace("Unknown    \n"+networkIsWell, "Ready GatewaysReady", "NotReady GatewaysNotReady", 1)},
		{"connecting", func(f *Facts) {
			networkOnly(f)
			f.Connections = connection(networkingv1beta1.Connecting)
		}, strings.Replace("Unknown    \n"+networkIsWell, "Established ConnectionEstablished", "Pending ConnectionPending", 1)},
		{"a consumer without a network", func(f *Facts) {
			identityOnly(f)
			f.Identities = nil
		}, "Consumer tenant   \nauthentication true\n" + tenantIsWell},
		{"a Tenant that is refused", func(f *Facts) {
			identityOnly(f)
			f.Identities = nil
			f.Tenants[0].Status = authv1beta1.TenantStatus{Conditions: is(metav1.ConditionFalse, "no nonce")}
		}, "Consumer    \nauthentication true\n- AuthTenantStatus NotReady TenantNotReady\n"},
		{"a provider whose API server has not been asked", func(f *Facts) {
			identityOnly(f)
			f.Tenants, f.APIServer = nil, nil
		}, "Provider tenant theirs " + urls + "authentication true\n" + identityIsWell},
		{"an Identity that nobody has judged, an API server that is away", func(f *Facts) {
			identityOnly(f)
			f.Tenants, f.APIServer = nil, &Answer{Problem: "it does not answer in time"}
			f.Identities[1].Status = authv1beta1.IdentityStatus{}
		}, "Provider tenant theirs " + urls + "authentication true\n- AuthIdentityControlPlaneStatus NotReady IdentityNotReady\nAPIServerStatus Error APIServerNotReady\n"},
		{"a proxy with a password, an API server that is no URL", func(f *Facts) {
			identityOnly(f)
			f.Tenants = nil
			f.Identities[1].Spec.AuthParams = authv1beta1.AuthParams{APIServer: "https://[", ProxyURL: new("http://me:secret@proxy:8118")}
		}, "Provider tenant theirs  http://me:xxxxx@proxy:8118\nauthentication true\n" + identityIsWell + apiServer},
		{"an identity that the user has made", func(f *Facts) {
			identityOnly(f)
			s := corev1.Secret{ObjectMeta: named("mine", "any"), Data: map[string][]byte{"kubeconfig": []byte(kubeconfig("https://milan.example:6443"))}}
			s.Annotations = map[string]string{authv1beta1.AnnotationRemoteTenantNamespace: "yours"}
			f.Tenants, f.Identities, f.Secrets = nil, nil, []corev1.Secret{s}
		}, "Provider mine yours https://milan.example:6443 \nauthentication true\n" + identityIsWell + apiServer},
		{"an identity that the provider denies access, and a Tenant that is cordoned", func(f *Facts) {
			identityOnly(f)
			f.APIServer = &Answer{Denied: "it denies access", Reason: corev1beta1.ReasonIdentityDenied}
			f.Tenants[0].Status.Conditions[0].Reason = authv1beta1.ReasonTenantCordoned
		}, "ConsumerAndProvider tenant theirs " + urls + "authentication true\n- AuthTenantStatus Ready TenantCordoned\n- AuthIdentityControlPlaneStatus NotReady IdentityDenied\n" + apiServer},
		{"one whose kubeconfig runs a program", func(f *Facts) {
			identityOnly(f)
			f.Tenants, f.Identities, f.APIServer = nil, nil, nil
			f.Secrets = []corev1.Secret{{ObjectMeta: named("mine", "any"), Data: map[string][]byte{"kubeconfig": []byte("users: [{user: {exec: {command: sh}}}]")}}}
		}, "Provider mine   \nauthentication true\n- AuthIdentityControlPlaneStatus NotReady IdentityNotReady\n"},
		{"an identity of a slice alone", func(f *Facts) {
			identityOnly(f)
			f.Tenants, f.Identities, f.APIServer = nil, f.Identities[:1], nil
		}, "Unknown    \n"},
		{"a virtual node that is ready", func(f *Facts) {
			identityOnly(f)
			f.Tenants = nil
			virtual(f, "a", running, running, true)
		}, "Provider tenant theirs " + urls + "authentication true\n" + identityIsWell + "offloading true\n- OffloadingVirtualNodeStatus Ready VirtualNodesReady\n- OffloadingNodeStatus Ready NodesReady\n" + apiServer},
		{"virtual nodes of which one is not ready", func(f *Facts) {
			networkOnly(f)
			virtual(f, "b", running, "", false)
			virtual(f, "a", running, running, true)
		}, "Provider    \n" + networkIsWell + "offloading true\n- OffloadingVirtualNodeStatus Ready VirtualNodesReady\n- OffloadingNodeStatus SomeNotReady NodesSomeNotReady\n"},
		{"a virtual node that nobody has looked at", func(f *Facts) {
			*f = Facts{ID: f.ID, Now: f.Now}
			virtual(f, "a", "", "", false)
		}, "Provider    \noffloading true\n- OffloadingVirtualNodeStatus NotReady VirtualNodesNotReady\n- OffloadingNodeStatus NotReady NodesNotReady\n"},
		{"a virtual node without a Node", func(f *Facts) {
			*f = Facts{ID: f.ID, Now: f.Now}
			virtual(f, "a", running, "", false)
			f.VirtualNodes[0].Spec.CreateNode = new(false)
		}, "Provider    \noffloading true\n- OffloadingVirtualNodeStatus Ready VirtualNodesReady\n"},
		{"a Node whose heartbeats have stopped", func(f *Facts) {
			*f = Facts{ID: f.ID, Now: f.Now}
			virtual(f, "a", running, running, false)
		}, "Provider    \noffloading true\n- OffloadingVirtualNodeStatus Ready VirtualNodesReady\n- OffloadingNodeStatus NotReady NodesNotReady\n"},
		{"a provider that has drained this cluster", func(f *Facts) {
			*f = Facts{ID: f.ID, Now: f.Now, Slices: answered(authv1beta1.ReasonTenantDrained)}
			virtual(f, "a", running, running, true)
		}, "Provider    \noffloading true\n- OffloadingVirtualNodeStatus Ready VirtualNodesReady\n- OffloadingNodeStatus NotReady TenantDrained\n"},
		{"one that has drained it, for a virtual node without a Node", func(f *Facts) {
			*f = Facts{ID: f.ID, Now: f.Now, Slices: answered(authv1beta1.ReasonTenantDrained)}
			virtual(f, "a", running, "", false)
			f.VirtualNodes[0].Spec.CreateNode = new(false)
		}, "Provider    \noffloading true\n- OffloadingVirtualNodeStatus NotReady TenantDrained\n"},
		{"one that has drained it, where there is no virtual node", func(f *Facts) {
			networkOnly(f)
			f.Slices = answered(authv1beta1.ReasonTenantDrained)
		}, "Unknown    \n" + networkIsWell},
		{"one that has cordoned it", func(f *Facts) {
			*f = Facts{ID: f.ID, Now: f.Now, Slices: answered(authv1beta1.ReasonTenantCordoned)}
			virtual(f, "a", running, running, true)
		}, "Provider    \noffloading true\n- OffloadingVirtualNodeStatus Ready VirtualNodesReady\n- OffloadingNodeStatus Ready NodesReady\n"},
		{"an older Configuration and an older Tenant", func(f *Facts) {
			identityOnly(f)
			f.Identities = nil
			older := f.Tenants[0]
			older.CreationTimestamp = metav1.NewTime(earlier.Add(-time.Hour))
			older.Status = authv1beta1.TenantStatus{TenantNamespace: "first", Conditions: is(metav1.ConditionTrue, "")}
			f.Tenants = append(f.Tenants, older)
		}, "Consumer first   \nauthentication true\n" + tenantIsWell},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := peered()
			c.change(&f)
			if !f.Exists() {
				t.Error("it does not exist")
			}
			if diff := cmp.Diff(c.want, told(Build(f))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if f := (Facts{ID: "milan", Deployments: []appsv1.Deployment{deployment("milan", 1, 0)}}); f.Exists() {
		t.Error("a Deployment that is about to go keeps a ForeignCluster")
	}
}

// TestBuildKeepsTimes: what is as it was is not written again, and a restart, after which no API server has been asked
// yet, is no change.
func TestBuildKeepsTimes(t *testing.T) {
	f := peered()
	first := Build(f)
	for _, c := range first.Modules.Networking.Conditions {
		if c.LastTransitionTime != now {
			t.Errorf("%s: since %v", c.Type, c.LastTransitionTime)
		}
	}
	f.Before, f.Now, f.APIServer = first, metav1.NewTime(now.Add(time.Hour)), nil
	if diff := cmp.Diff(first, Build(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	denied := f
	denied.APIServer = &Answer{Denied: "it denies access", Reason: corev1beta1.ReasonIdentityDenied}
	denied.Before, denied.APIServer = Build(denied), nil
	if diff := cmp.Diff(denied.Before, Build(denied)); diff != "" {
		t.Errorf("of a provider that denies access (-want +got):\n%s", diff)
	}
	f.Connections, f.APIServer = connection(networkingv1beta1.ConnectionError), &Answer{Problem: "it does not answer in time"}
	for _, c := range append(Build(f).Modules.Networking.Conditions, Build(f).Conditions...) {
		changed := c.Type == corev1beta1.ConditionNetworkConnection || c.Type == corev1beta1.ConditionAPIServer
		if (c.LastTransitionTime == f.Now) != changed {
			t.Errorf("%s: since %v", c.Type, c.LastTransitionTime)
		}
	}
}

// TestSecret: what is wrong with the Secret of an identity is told, since nobody else reads it.
func TestSecret(t *testing.T) {
	expires := earlier.Add(30 * time.Minute)
	good := func() corev1.Secret {
		s := corev1.Secret{ObjectMeta: named("tenant", "any"), Data: map[string][]byte{"kubeconfig": credentialtest.Kubeconfig(t, expires)}}
		s.Annotations = map[string]string{authv1beta1.AnnotationRemoteTenantNamespace: "theirs"}
		return s
	}
	for _, c := range []struct {
		name, want string
		now        metav1.Time
		change     func(*Facts)
		until      time.Duration
	}{
		{"good", "Ready: Secret tenant/any: it holds the kubeconfig", earlier, func(*Facts) {}, 30 * time.Minute},
		{"expired", "NotReady: Secret tenant/any: the client certificate of its kubeconfig was valid until 2030-01-01T00:30:00Z", now, func(*Facts) {}, 0},
		{"without annotation", "NotReady: Secret tenant/any: the annotation liqo.io/remote-tenant-namespace is missing: set it to the name of the tenant namespace at cluster milan", earlier,
			func(f *Facts) { f.Secrets[0].Annotations = nil }, 30 * time.Minute},
		{"of no namespace", "NotReady: Secret tenant/any: the annotation liqo.io/remote-tenant-namespace is \"../x\", which is not the name of a namespace", earlier,
			func(f *Facts) { f.Secrets[0].Annotations[authv1beta1.AnnotationRemoteTenantNamespace] = "../x" }, 30 * time.Minute},
		{"empty", "NotReady: Secret tenant/any: its kubeconfig cannot be used: it is empty", earlier, func(f *Facts) { f.Secrets[0].Data = nil }, 0},
		{"two of them", "SomeNotReady: Secret tenant/any: it is used, but Secret tenant/zzz, which is newer, is also for cluster milan: delete one of them", earlier,
			func(f *Facts) { f.Secrets = append(f.Secrets, corev1.Secret{ObjectMeta: named("tenant", "zzz")}) }, 30 * time.Minute},
		{"of an Identity", "Ready: Identity tenant/controlplane-milan: Secret a", earlier, func(f *Facts) { f.Identities = peered().Identities }, 30 * time.Minute},
		{"expired, of an Identity", "NotReady: Secret tenant/any: the client certificate of its kubeconfig was valid until 2030-01-01T00:30:00Z", now,
			func(f *Facts) { f.Identities = peered().Identities }, 0},
		{"good, of an Identity that is not", "NotReady: Identity tenant/controlplane-milan has not been judged yet", earlier, func(f *Facts) {
			f.Identities = peered().Identities
			f.Identities[1].Status.Conditions = nil
		}, 30 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Facts{ID: "milan", Now: c.now, Secrets: []corev1.Secret{good()}}
			c.change(&f)
			all := Build(f).Modules.Authentication.Conditions
			if len(all) != 1 {
				t.Fatalf("conditions %+v", all)
			}
			if got := fmt.Sprintf("%s: %s", all[0].Status, all[0].Message); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := f.untilExpiry(); got != c.until {
				t.Errorf("to be judged again after %v, want %v", got, c.until)
			}
		})
	}
}

func kubeconfig(server string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: %q}}]
users: [{name: a, user: {token: secret}}]
`, server)
}
