package foreigncluster

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// Facts are the objects of one peering.
type Facts struct {
	// ID is that of the other cluster.
	ID string

	Configurations []networkingv1beta1.Configuration
	Servers        []networkingv1beta1.GatewayServer
	Clients        []networkingv1beta1.GatewayClient
	Connections    []networkingv1beta1.Connection
	// Deployments are those of the gateways.
	Deployments []appsv1.Deployment

	// Tenants, Identities and Secrets are empty where the controllers of authentication do not run.
	Tenants    []authv1beta1.Tenant
	Identities []authv1beta1.Identity
	// Secrets are those of identities of type ControlPlane.
	Secrets []corev1.Secret

	// VirtualNodes stand for the cluster, Nodes are theirs, by Slices the cluster is asked for what they have. They are empty
	// where the controllers of offloading do not run.
	VirtualNodes []offloadingv1beta1.VirtualNode
	Nodes        []corev1.Node
	Slices       []authv1beta1.ResourceSlice

	// APIServer is what the API server of a provider answered last; nil: it has not been asked yet.
	APIServer *Answer
	// Before is the status as it is.
	Before corev1beta1.ForeignClusterStatus
	// Generation is that of the ForeignCluster.
	Generation int64
	Now        metav1.Time
}

// Answer is that of an API server.
type Answer struct {
	// Problem is why it does not serve; empty: it does.
	Problem string
	// Denied is why this cluster cannot ask it for resources; empty: it can, or the API server was not asked that. Reason is
	// the same in one word.
	Denied string
	Reason corev1beta1.ConditionReason
}

// Exists tells whether there is anything that a ForeignCluster could be about.
func (f *Facts) Exists() bool {
	return len(f.Configurations)+len(f.Servers)+len(f.Clients)+len(f.Connections)+len(f.Tenants)+len(f.Identities)+len(f.Secrets)+len(f.VirtualNodes) > 0
}

// kubeconfig is that of the identity that counts; empty: there is none.
func (f *Facts) kubeconfig() []byte {
	if s := oldest(f.Secrets); s != nil {
		return s.Data[authv1beta1.KubeconfigKey]
	}
	return nil
}

// remoteNamespace is the tenant namespace at the provider that goes with kubeconfig; empty: it is not known.
func (f *Facts) remoteNamespace() string {
	s := oldest(f.Secrets)
	if s == nil || len(validation.IsDNS1123Label(s.Annotations[authv1beta1.AnnotationRemoteTenantNamespace])) > 0 {
		return ""
	}
	return s.Annotations[authv1beta1.AnnotationRemoteTenantNamespace]
}

// Build returns the status that a ForeignCluster is to have. Of several objects of a kind the oldest counts, as it does
// for the other controllers.
//
//	there is                    role         module networking    module authentication                      module offloading
//	objects of the network      Unknown      enabled, conditions  disabled                                   disabled
//	a Tenant                    Consumer     -                    enabled, AuthTenantStatus                  disabled
//	an Identity ControlPlane    Provider     -                    enabled, AuthIdentityControlPlaneStatus    -
//	only its Secret             Provider     -                    enabled, AuthIdentityControlPlaneStatus    -
//	a VirtualNode               Provider     -                    -                                          enabled, conditions
//	a Tenant and one of these   ConsumerAndProvider
func Build(f Facts) corev1beta1.ForeignClusterStatus {
	s := corev1beta1.ForeignClusterStatus{Role: corev1beta1.UnknownRole, ObservedGeneration: f.Generation}
	s.Modules.Networking = f.networking()
	tenant, identity, secret := oldest(f.Tenants), f.identity(), oldest(f.Secrets)
	s.Modules.Authentication = f.authentication(tenant, identity)
	if tenant != nil {
		s.TenantNamespace.Local = tenant.Status.TenantNamespace
	}
	s.Modules.Offloading = f.offloading()
	provides := identity != nil || secret != nil || s.Modules.Offloading.Enabled
	switch {
	case tenant != nil && provides:
		s.Role = corev1beta1.ConsumerAndProviderRole
	case tenant != nil:
		s.Role = corev1beta1.ConsumerRole
	case provides:
		s.Role = corev1beta1.ProviderRole
	}
	if identity != nil {
		s.TenantNamespace = corev1beta1.TenantNamespace{Local: identity.Namespace, Remote: value(identity.Spec.Namespace)}
		s.APIServerURL, s.ForeignProxyURL = redacted(identity.Spec.AuthParams.APIServer), redacted(value(identity.Spec.AuthParams.ProxyURL))
	} else if secret != nil {
		s.TenantNamespace = corev1beta1.TenantNamespace{Local: secret.Namespace, Remote: secret.Annotations[authv1beta1.AnnotationRemoteTenantNamespace]}
		s.APIServerURL, s.ForeignProxyURL = server(secret)
	}
	if provides {
		s.Conditions = f.apiServer()
	}
	f.date(s.Modules.Networking.Conditions, f.Before.Modules.Networking.Conditions)
	f.date(s.Modules.Authentication.Conditions, f.Before.Modules.Authentication.Conditions)
	f.date(s.Modules.Offloading.Conditions, f.Before.Modules.Offloading.Conditions)
	f.date(s.Conditions, f.Before.Conditions)
	return s
}

// identity is that of the controllers. Those of ResourceSlices tell nothing more.
func (f *Facts) identity() *authv1beta1.Identity {
	var all []authv1beta1.Identity
	for _, i := range f.Identities {
		if i.Spec.Type == authv1beta1.ControlPlaneIdentity {
			all = append(all, i)
		}
	}
	return oldest(all)
}

// networking judges the network.
func (f *Facts) networking() (m corev1beta1.Module) {
	configuration, gwServer, gwClient, connection := oldest(f.Configurations), oldest(f.Servers), oldest(f.Clients), oldest(f.Connections)
	m.Enabled = configuration != nil || gwServer != nil || gwClient != nil || connection != nil
	if !m.Enabled {
		return m
	}
	add := func(c corev1beta1.Condition) { m.Conditions = append(m.Conditions, c) }
	if configuration == nil {
		add(condition(corev1beta1.ConditionNetworkConfiguration, corev1beta1.StatusNotReady, corev1beta1.ReasonNetworkConfigurationMissing,
			"there is no Configuration of cluster %s: apply what 'liqoctl generate configuration' prints there", f.ID))
	} else {
		add(condition(corev1beta1.ConditionNetworkConfiguration, corev1beta1.StatusReady, corev1beta1.ReasonNetworkConfigurationPresence,
			"Configuration %s/%s has the CIDRs of the cluster", configuration.Namespace, configuration.Name))
	}
	if gwServer == nil && gwClient == nil {
		add(condition(corev1beta1.ConditionNetworkGatewayPresence, corev1beta1.StatusNotReady, corev1beta1.ReasonGatewayMissing,
			"there is neither a GatewayServer nor a GatewayClient for cluster %s: create one", f.ID))
	} else {
		add(condition(corev1beta1.ConditionNetworkGatewayPresence, corev1beta1.StatusReady, corev1beta1.ReasonGatewayPresence,
			"there is a gateway for the cluster"))
	}
	if gwServer != nil {
		add(f.gateway(corev1beta1.ConditionNetworkGatewayServer, "GatewayServer", gwServer))
	}
	if gwClient != nil {
		add(f.gateway(corev1beta1.ConditionNetworkGatewayClient, "GatewayClient", gwClient))
	}
	add(f.connection(connection))
	return m
}

// gateway judges the pods of a gateway.
func (f *Facts) gateway(of corev1beta1.ConditionType, kind string, g client.Object) corev1beta1.Condition {
	name := kind + " " + client.ObjectKeyFromObject(g).String()
	var ready, unavailable int32
	for i := range f.Deployments {
		d := &f.Deployments[i]
		if d.Namespace == g.GetNamespace() && d.Labels[networkingv1beta1.LabelGatewayName] == g.GetName() && d.Labels[networkingv1beta1.LabelGatewayNamespace] == g.GetNamespace() {
			ready, unavailable = ready+d.Status.ReadyReplicas, unavailable+d.Status.UnavailableReplicas
		}
	}
	switch {
	case ready == 0:
		return condition(of, corev1beta1.StatusNotReady, corev1beta1.ReasonGatewaysNotReady, "no pod of %s is ready: 'liqoctl info peer %s' tells why", name, f.ID)
	case unavailable > 0:
		return condition(of, corev1beta1.StatusSomeNotReady, corev1beta1.ReasonGatewaysSomeNotReady, "not all pods of %s are ready: 'liqoctl info peer %s' tells why", name, f.ID)
	}
	return condition(of, corev1beta1.StatusReady, corev1beta1.ReasonGatewaysReady, "all pods of %s are ready", name)
}

// connection judges the tunnel.
func (f *Facts) connection(c *networkingv1beta1.Connection) corev1beta1.Condition {
	const of = corev1beta1.ConditionNetworkConnection
	if c == nil {
		return condition(of, corev1beta1.StatusNotReady, corev1beta1.ReasonConnectionMissing, "there is no Connection with cluster %s: it comes with the gateway and the PublicKey of the cluster", f.ID)
	}
	switch c.Status.Value {
	case networkingv1beta1.Connected:
		return condition(of, corev1beta1.StatusEstablished, corev1beta1.ReasonConnectionEstablished, "cluster %s answers", f.ID)
	case networkingv1beta1.Connecting, "":
		return condition(of, corev1beta1.StatusPending, corev1beta1.ReasonConnectionPending, "cluster %s has not answered yet: 'liqoctl info peer %[1]s' tells why", f.ID)
	}
	return condition(of, corev1beta1.StatusError, corev1beta1.ReasonConnectionError, "cluster %s does not answer: 'liqoctl info peer %[1]s' tells why", f.ID)
}

// authentication judges who may ask whom.
func (f *Facts) authentication(t *authv1beta1.Tenant, i *authv1beta1.Identity) (m corev1beta1.Module) {
	m.Enabled = t != nil || i != nil || len(f.Secrets) > 0
	judge := func(of corev1beta1.ConditionType, object string, conditions []metav1.Condition, ready, notReady corev1beta1.ConditionReason) corev1beta1.Condition {
		c := meta.FindStatusCondition(conditions, authv1beta1.ConditionReady)
		switch {
		case c == nil:
			return condition(of, corev1beta1.StatusNotReady, notReady, "%s has not been judged yet", object)
		case c.Reason == authv1beta1.ReasonTenantCordoned:
			return condition(of, corev1beta1.StatusReady, corev1beta1.ReasonTenantCordoned, "%s: %s", object, c.Message)
		case c.Status == metav1.ConditionTrue:
			return condition(of, corev1beta1.StatusReady, ready, "%s: %s", object, c.Message)
		}
		return condition(of, corev1beta1.StatusNotReady, notReady, "%s: %s", object, c.Message)
	}
	if t != nil {
		m.Conditions = append(m.Conditions, judge(corev1beta1.ConditionAuthTenant, "Tenant "+client.ObjectKeyFromObject(t).String(), t.Status.Conditions, corev1beta1.ReasonTenantReady, corev1beta1.ReasonTenantNotReady))
	}
	identity := f.secret()
	if i != nil {
		c := judge(corev1beta1.ConditionAuthIdentityControlPlane, "Identity "+client.ObjectKeyFromObject(i).String(), i.Status.Conditions, corev1beta1.ReasonIdentityReady, corev1beta1.ReasonIdentityNotReady)
		if identity == nil || identity.Status == corev1beta1.StatusReady || c.Status != corev1beta1.StatusReady {
			identity = &c
		}
	}
	if identity != nil {
		m.Conditions = append(m.Conditions, f.admitted(*identity))
	}
	return m
}

// admitted is the condition of an identity that is ready, unless the provider does not let it ask. Until the provider has
// been asked, what was said before stays.
func (f *Facts) admitted(c corev1beta1.Condition) corev1beta1.Condition {
	before := find(f.Before.Modules.Authentication.Conditions, c.Type)
	switch {
	case c.Status != corev1beta1.StatusReady:
		return c
	case f.APIServer == nil && before != nil && before.Reason == corev1beta1.ReasonIdentityDenied:
		return *before
	case f.APIServer == nil || f.APIServer.Denied == "":
		return c
	}
	return condition(c.Type, corev1beta1.StatusNotReady, f.APIServer.Reason, "the API server of cluster %s: %s", f.ID, f.APIServer.Denied)
}

// secret judges the Secret of the identity, so that nobody else has to read it; nil: there is none.
func (f *Facts) secret() *corev1beta1.Condition {
	s := oldest(f.Secrets)
	if s == nil {
		return nil
	}
	say := func(status corev1beta1.ConditionStatus, reason corev1beta1.ConditionReason, format string, args ...any) *corev1beta1.Condition {
		c := condition(corev1beta1.ConditionAuthIdentityControlPlane, status, reason, "Secret %s: %s", client.ObjectKeyFromObject(s), fmt.Sprintf(format, args...))
		return &c
	}
	const bad = corev1beta1.StatusNotReady
	const why = corev1beta1.ReasonIdentityNotReady
	cfg, err := credentials.ReadKubeconfig(s.Data[authv1beta1.KubeconfigKey])
	expires, certificateErr := expiry(cfg)
	switch {
	case s.Annotations[authv1beta1.AnnotationRemoteTenantNamespace] == "":
		return say(bad, why, "the annotation %s is missing: set it to the name of the tenant namespace at cluster %s", authv1beta1.AnnotationRemoteTenantNamespace, f.ID)
	case f.remoteNamespace() == "":
		return say(bad, why, "the annotation %s is %q, which is not the name of a namespace", authv1beta1.AnnotationRemoteTenantNamespace, text.Quoted(s.Annotations[authv1beta1.AnnotationRemoteTenantNamespace]))
	case err != nil:
		return say(bad, why, "its kubeconfig cannot be used: %v", err)
	case certificateErr != nil:
		return say(bad, why, "the client certificate of its kubeconfig cannot be used: %v", certificateErr)
	case !expires.IsZero() && !f.Now.Time.Before(expires):
		return say(bad, why, "the client certificate of its kubeconfig was valid until %s", expires.UTC().Format(time.RFC3339))
	case len(f.Secrets) > 1:
		others := slices.DeleteFunc(slices.Clone(f.Secrets), func(o corev1.Secret) bool { return o.Namespace == s.Namespace && o.Name == s.Name })
		return say(corev1beta1.StatusSomeNotReady, why, "it is used, but Secret %s, which is newer, is also for cluster %s: delete one of them", client.ObjectKeyFromObject(oldest(others)), f.ID)
	}
	return say(corev1beta1.StatusReady, corev1beta1.ReasonIdentityReady, "it holds the kubeconfig")
}

// expiry is when the client certificate of a kubeconfig expires; zero: it has none.
func expiry(cfg *rest.Config) (time.Time, error) {
	if cfg == nil || len(cfg.CertData) == 0 {
		return time.Time{}, nil
	}
	c, err := credentials.ParseCertificate(cfg.CertData)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

// untilExpiry is when the client certificate that counts expires, from now; zero: it does not, or has.
func (f *Facts) untilExpiry() time.Duration {
	cfg, err := credentials.ReadKubeconfig(f.kubeconfig())
	if err != nil {
		return 0
	}
	expires, err := expiry(cfg)
	if err != nil || expires.IsZero() {
		return 0
	}
	return max(0, expires.Sub(f.Now.Time))
}

// offloading judges the virtual nodes. What keeps one from being ready its own conditions tell. All of them may be ready
// where the provider has drained this cluster, and yet no pod runs there.
func (f *Facts) offloading() (m corev1beta1.Module) {
	m.Enabled = len(f.VirtualNodes) > 0
	var processes, nodes tally
	for i := range f.VirtualNodes {
		v := &f.VirtualNodes[i]
		name := "VirtualNode " + client.ObjectKeyFromObject(v).String()
		process := conditionOf(v, offloadingv1beta1.VirtualNodeVirtualKubelet)
		processes.count(process.Status == offloadingv1beta1.VirtualNodeRunning, name, process.Message)
		if v.Spec.CreateNode == nil || *v.Spec.CreateNode {
			nodes.count(f.nodeReady(v.Name), "Node "+v.Name, conditionOf(v, offloadingv1beta1.VirtualNodeNode).Message)
		}
	}
	if processes.all > 0 {
		m.Conditions = append(m.Conditions, processes.judge(corev1beta1.ConditionOffloadingVirtualNode, "VirtualNode",
			corev1beta1.ReasonVirtualNodesReady, corev1beta1.ReasonVirtualNodesSomeNotReady, corev1beta1.ReasonVirtualNodesNotReady))
	}
	if nodes.all > 0 {
		m.Conditions = append(m.Conditions, nodes.judge(corev1beta1.ConditionOffloadingNode, "Node",
			corev1beta1.ReasonNodesReady, corev1beta1.ReasonNodesSomeNotReady, corev1beta1.ReasonNodesNotReady))
	}
	if i := slices.IndexFunc(f.Slices, func(s authv1beta1.ResourceSlice) bool { return s.Drained() }); i >= 0 && m.Enabled {
		last := &m.Conditions[len(m.Conditions)-1]
		*last = condition(last.Type, corev1beta1.StatusNotReady, corev1beta1.ReasonTenantDrained,
			"cluster %s has drained this cluster, and runs no pods for it: the administrators of cluster %[1]s can end this with 'liqoctl activate tenant %[2]s'",
			f.ID, cmp.Or(string(value(f.Slices[i].Spec.ConsumerClusterID)), "NAME"))
	}
	return m
}

// conditionOf is a condition of a VirtualNode, empty while there is none.
func conditionOf(v *offloadingv1beta1.VirtualNode, of offloadingv1beta1.VirtualNodeConditionType) (found offloadingv1beta1.VirtualNodeCondition) {
	for _, c := range v.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return found
}

// nodeReady tells whether a Node of the cluster is ready.
func (f *Facts) nodeReady(name string) bool {
	i := slices.IndexFunc(f.Nodes, func(n corev1.Node) bool { return n.Name == name })
	return i >= 0 && isReady(&f.Nodes[i])
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// tally counts what is ready.
type tally struct {
	all, ready int
	// why says what is not, by name: the order of objects must not matter.
	why map[string]string
}

func (t *tally) count(ready bool, name, why string) {
	if t.all++; ready {
		t.ready++
		return
	}
	if t.why == nil {
		t.why = map[string]string{}
	}
	t.why[name] = cmp.Or(why, "no process has looked at it yet")
}

// judge names the first that is not ready.
func (t *tally) judge(of corev1beta1.ConditionType, kind string, ready, some, none corev1beta1.ConditionReason) corev1beta1.Condition {
	if t.ready == t.all {
		return condition(of, corev1beta1.StatusReady, ready, "every %s is ready", kind)
	}
	first := slices.Min(slices.Collect(maps.Keys(t.why)))
	text := first + " is not ready: " + t.why[first]
	if t.ready == 0 {
		return condition(of, corev1beta1.StatusNotReady, none, "%s", text)
	}
	return condition(of, corev1beta1.StatusSomeNotReady, some, "%s", text)
}

// apiServer judges the API server of a provider. Until it has been asked, what was said before stays: a restart is no
// news.
func (f *Facts) apiServer() []corev1beta1.Condition {
	const of = corev1beta1.ConditionAPIServer
	switch {
	case f.APIServer == nil:
		if c := find(f.Before.Conditions, of); c != nil {
			return []corev1beta1.Condition{*c}
		}
		return nil
	case f.APIServer.Problem != "":
		return []corev1beta1.Condition{condition(of, corev1beta1.StatusError, corev1beta1.ReasonAPIServerNotReady, "the API server of cluster %s: %s", f.ID, f.APIServer.Problem)}
	}
	return []corev1beta1.Condition{condition(of, corev1beta1.StatusEstablished, corev1beta1.ReasonAPIServerReady, "the API server of cluster %s answers", f.ID)}
}

// date says since when conditions are as they are.
func (f *Facts) date(conditions, before []corev1beta1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		if b := find(before, c.Type); b != nil && b.Status == c.Status {
			c.LastTransitionTime = b.LastTransitionTime
		} else {
			c.LastTransitionTime = f.Now
		}
	}
}

func find(conditions []corev1beta1.Condition, of corev1beta1.ConditionType) *corev1beta1.Condition {
	i := slices.IndexFunc(conditions, func(c corev1beta1.Condition) bool { return c.Type == of })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

func condition(of corev1beta1.ConditionType, status corev1beta1.ConditionStatus, reason corev1beta1.ConditionReason, format string, args ...any) corev1beta1.Condition {
	return corev1beta1.Condition{Type: of, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// redacted is a URL without its password: more people may read a ForeignCluster than an Identity. What is no URL is left out.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

// server returns the URLs of the API server and of its proxy in a kubeconfig; empty: it cannot be used.
func server(s *corev1.Secret) (server, proxy string) {
	cfg, err := credentials.ReadKubeconfig(s.Data[authv1beta1.KubeconfigKey])
	if err != nil {
		return "", ""
	}
	if cfg.Proxy != nil {
		if u, err := cfg.Proxy(new(http.Request)); err == nil && u != nil {
			proxy = u.Redacted()
		}
	}
	return cfg.Host, proxy
}

// object is a pointer to an object.
type object[T any] interface {
	*T
	client.Object
}

// oldest returns the oldest of some objects, nil of none.
func oldest[T any, P object[T]](all []T) P {
	if len(all) == 0 {
		return nil
	}
	first := P(&all[0])
	for i := range all[1:] {
		o := P(&all[i+1])
		if cmp.Or(o.GetCreationTimestamp().Compare(first.GetCreationTimestamp().Time), cmp.Compare(o.GetNamespace(), first.GetNamespace()), cmp.Compare(o.GetName(), first.GetName())) < 0 {
			first = o
		}
	}
	return first
}

func value[S ~string](s *S) S {
	if s == nil {
		return ""
	}
	return *s
}
