package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// authentication judges the identities of one end: the Tenant of the other cluster here, and that of this cluster there. Its
// Secret is read by the controller, which tells what it thinks of it, and whether the other API server lets it in, by the
// ForeignCluster. Events are of use where something is not answered, and no condition says why.
func authentication(e *end) (out []Finding) {
	if e.tenants.err != nil {
		return []Finding{skip("%s", plain(e.tenants.err))}
	}
	seen := 0
	for i := range e.tenants.items {
		if t := &e.tenants.items[i]; string(t.Spec.ClusterID) == e.id {
			seen++
			out = append(out, tenantFindings(t)...)
		}
	}
	if c := e.identity(); c != nil {
		seen++
		out = append(out, e.identityFindings(c)...)
	}
	out = append(out, e.sliceFindings()...)
	why := e.cluster.unread("ForeignCluster")
	switch {
	case len(out) > 0:
		return out
	case why != "" && (seen == 0 || e.shookHands()):
		return []Finding{skip("%s", why)}
	case why != "":
		return []Finding{pass("the Tenant is ready; whether this cluster has an identity in cluster %s is not known: %s", e.id, why)}
	case seen == 0:
		return []Finding{pass("no identities")}
	}
	return []Finding{pass("identities are ready")}
}

func tenantFindings(t *authv1beta1.Tenant) []Finding {
	on := func(f Finding) []Finding { return []Finding{f.on("Tenant " + t.Namespace + "/" + t.Name)} }
	id := t.Spec.ClusterID
	switch t.Spec.TenantCondition {
	case authv1beta1.TenantCordoned:
		return on(fail("cluster %s is cordoned: it keeps its resources, and gets no more", id).
			because("spec.tenantCondition is %s", t.Spec.TenantCondition).fix("if you no longer want this: liqoctl uncordon tenant %s", t.Name))
	case authv1beta1.TenantDrained:
		return on(fail("cluster %s is drained: it has no resources, and its requests are denied", id).
			because("spec.tenantCondition is %s", t.Spec.TenantCondition).fix("if you no longer want this: liqoctl activate tenant %s", t.Name))
	}
	c := meta.FindStatusCondition(t.Status.Conditions, authv1beta1.ConditionReady)
	switch {
	case t.JudgedByLiqo(): // whose controllers say no more
		return nil
	case c == nil || c.ObservedGeneration < t.Generation:
		return on(fail("no controller has looked at it").because("the controller does not run, or authentication is not enabled").
			fix("liqoctl install --set authentication.enabled=true"))
	case c.Status == metav1.ConditionTrue:
		return nil
	case c.Reason == authv1beta1.ReasonRoleBindingMissing:
		return on(fail("%s", c.Message).because("with authzPolicy %s you grant the rights by hand, and no user has them", t.Spec.AuthzPolicy).
			fix("%s", bind(t.Namespace, "USER", string(id))))
	}
	return on(fail("%s", c.Message).because("the controller says %s", c.Reason).fix("fix what it names; liqoctl authenticate creates all of it again"))
}

// bind is the command by which a provider gives a user the rights of a consumer.
func bind(namespace, user, consumer string) string {
	return fmt.Sprintf("kubectl -n %[1]s create rolebinding %[2]s --clusterrole=%[2]s --user=%[3]s && kubectl -n %[1]s label rolebinding %[2]s %[4]s=%[5]s",
		namespace, authv1beta1.RemoteControlPlaneRole, user, networkingv1beta1.LabelRemoteClusterID, consumer)
}

// identity is what the controller says of the identity of this cluster in the other one; nil: there is none.
func (e *end) identity() *corev1beta1.Condition {
	if e.peer == nil || e.peer.Foreign == nil {
		return nil
	}
	all := e.peer.Foreign.Status.Modules.Authentication.Conditions
	i := slices.IndexFunc(all, func(c corev1beta1.Condition) bool { return c.Type == corev1beta1.ConditionAuthIdentityControlPlane })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func (e *end) identityFindings(c *corev1beta1.Condition) []Finding {
	status := &e.peer.Foreign.Status
	if c.Reason == corev1beta1.ReasonIdentityDenied {
		return []Finding{e.denied("%s", c.Message).on("ForeignCluster " + e.peer.Foreign.Name)}
	}
	if !c.Status.Well() {
		return []Finding{fail("%s", c.Message).because("the controller says %s", c.Reason).
			fix("fix what it names; %s", e.identityAgain()).on("ForeignCluster " + e.peer.Foreign.Name)}
	}
	if out := e.apiServerFindings(); len(out) > 0 || !e.slicesWait() {
		return out
	}
	for i := range e.cluster.events.items { // the newest first
		ev := &e.cluster.events.items[i]
		if o := ev.InvolvedObject; o.Kind != "Secret" || o.Namespace != status.TenantNamespace.Local || survey.EventTime(ev).Before(c.LastTransitionTime.Time) {
			continue
		}
		on := func(f Finding) []Finding {
			return []Finding{f.on("Secret " + ev.InvolvedObject.Namespace + "/" + ev.InvolvedObject.Name)}
		}
		switch there := status.TenantNamespace.Remote; ev.Reason {
		case authv1beta1.ReasonReplicating:
			return nil
		case authv1beta1.ReasonRoleBindingMissing:
			return on(e.denied("cluster %s denies access to its namespace %s", e.id, there))
		case authv1beta1.ReasonNameTaken, authv1beta1.ReasonAnswerInvalid:
			return on(fail("%s", ev.Message).because("the controller says %s", ev.Reason).fix("fix what it names; rename or delete one of two objects with the same name"))
		case authv1beta1.ReasonCopyRefused:
			return on(fail("%s", ev.Message).because("the controller says %s", ev.Reason).
				fix("change the object here, or the policy or quota of cluster %s that it names; clusters of different versions: install the same version in both", e.id))
		}
	}
	return nil
}

// slicesWait tells whether this cluster asks for something that the other one has not answered. Events of its identity may
// say why; where all is answered they are about what has passed.
func (e *end) slicesWait() bool {
	return slices.ContainsFunc(e.cluster.offloads.slices.items, func(s authv1beta1.ResourceSlice) bool { return e.asks(&s) && len(s.Status.Conditions) == 0 })
}

// asks tells whether a ResourceSlice asks the peer of this end.
func (e *end) asks(s *authv1beta1.ResourceSlice) bool {
	return e.id != "" && s.Asks() == e.id
}

// isAsked tells whether a ResourceSlice is a copy by which the peer of this end asks this cluster.
func (e *end) isAsked(s *authv1beta1.ResourceSlice) bool {
	return s.Labels[authv1beta1.LabelReplicationOrigin] == e.id && s.Labels[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue
}

// denied is that the other cluster lets the identity of this one do nothing. Of credentials by other means than a handshake
// nobody but their owner knows the user.
func (e *end) denied(format string, args ...any) Finding {
	user, of := "USER", "the user of the kubeconfig in the Secret of the identity"
	if id := e.cluster.Installation.ClusterID; id != "" && e.shookHands() {
		user, of = id, "user "+id
	}
	what := "in cluster %s: %s"
	if user == "USER" {
		what += ", where USER is " + of
	}
	return fail(format, args...).
		because("no RoleBinding there, or one for another user, binds %s to ClusterRole %s; or the namespace is another one", of, authv1beta1.RemoteControlPlaneRole).
		fix(what, e.id, bind(e.peer.Foreign.Status.TenantNamespace.Remote, user, cmp.Or(e.cluster.Installation.ClusterID, "CONSUMER")))
}

// shookHands tells whether a handshake made the identity of this cluster in the other one.
func (e *end) shookHands() bool {
	return slices.ContainsFunc(e.identities.items, func(i authv1beta1.Identity) bool {
		return string(i.Spec.ClusterID) == e.id && i.Spec.Type == authv1beta1.ControlPlaneIdentity
	})
}

// identityAgain says how the identity of this cluster in the other one is created again: as it was the first time.
func (e *end) identityAgain() string {
	if e.shookHands() {
		return "'liqoctl authenticate' creates the identity again"
	}
	given := fmt.Sprintf("'liqoctl create identity --remote-cluster-id %s --identity-kubeconfig FILE' replaces credentials of your own", e.id)
	if e.identities.err != nil {
		return given + ", 'liqoctl authenticate' those of a handshake"
	}
	return given
}

// maxSaid is how many bytes of what another cluster says are shown.
const maxSaid = 300

// sliceFindings are the ResourceSlices of either cluster that the other one denies something, one finding for each reason.
func (e *end) sliceFindings() (out []Finding) {
	if err := e.cluster.offloads.slices.err; err != nil {
		return []Finding{skip("%s", plain(err))}
	}
	denied, denies := map[string][]*authv1beta1.ResourceSlice{}, map[string][]*authv1beta1.ResourceSlice{}
	for i := range e.cluster.offloads.slices.items {
		s := &e.cluster.offloads.slices.items[i]
		switch c := denial(s); {
		case e.isAsked(s) && c != nil && c.Reason != authv1beta1.ReasonTenantCordoned && c.Reason != authv1beta1.ReasonTenantDrained: // the Tenant tells these
			denies[c.Reason] = append(denies[c.Reason], s)
		case !e.asks(s):
		case c != nil:
			denied[c.Reason] = append(denied[c.Reason], s)
		case undecided(s):
			out = append(out, warn("nothing in cluster %s has decided on the resources of the slice", e.id).on("ResourceSlice "+s.Namespace+"/"+s.Name).
				because("its class is %q, and it is for a controller of that cluster's own to decide on slices of this class", s.Spec.Class).
				fix("if there is no such controller: kubectl delete rslice %s -n %s, and create it with class %s or %s", s.Name, s.Namespace,
					authv1beta1.SliceClassDefault, authv1beta1.SliceClassAvailable))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(denied)) {
		c := denial(denied[reason][0])
		f := fail("cluster %s denies %s: %s", e.id, c.Type, text.Cut(c.Message, maxSaid)).
			because("that cluster says %s", text.Cut(reason, maxSaid)).fix("%s", e.fixDenial(denied[reason][0], reason))
		out = append(out, onSlices(f, denied[reason]))
	}
	for _, reason := range slices.Sorted(maps.Keys(denies)) { // it may well be meant to
		c := denial(denies[reason][0])
		f := warn("this cluster denies cluster %s %s: %s", e.id, c.Type, text.Cut(c.Message, maxSaid)).because("it says %s", text.Cut(reason, maxSaid))
		if reason == authv1beta1.ReasonSliceCordoned {
			f = f.fix("if you no longer want this: liqoctl uncordon resourceslice %s -n %s", denies[reason][0].Name, denies[reason][0].Namespace)
		} else {
			f = f.fix("if you want to grant it, fix what it names")
		}
		out = append(out, onSlices(f, denies[reason]))
	}
	return out
}

// onSlices is a finding that is the same for all these slices.
func onSlices(f Finding, all []*authv1beta1.ResourceSlice) Finding {
	if len(all) > 1 {
		f.Message += fmt.Sprintf(" (one of %d slices)", len(all))
	}
	return f.on("ResourceSlice " + all[0].Namespace + "/" + all[0].Name)
}

// denial is the first condition by which the provider denies a slice something; nil: none. Of one that gets no credentials
// the second says the same.
func denial(s *authv1beta1.ResourceSlice) *authv1beta1.ResourceSliceCondition {
	i := slices.IndexFunc(s.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Status == authv1beta1.SliceDenied })
	if i < 0 {
		return nil
	}
	return &s.Status.Conditions[i]
}

// undecided tells whether a slice has its credentials, and is of a class on whose resources a controller of the provider's own
// decides, which has not.
func undecided(s *authv1beta1.ResourceSlice) bool {
	own := s.Spec.Class == "" || s.Spec.Class == authv1beta1.SliceClassDefault || s.Spec.Class == authv1beta1.SliceClassAvailable
	return !own && len(s.Status.Conditions) > 0 &&
		!slices.ContainsFunc(s.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == authv1beta1.SliceResources })
}

func (e *end) fixDenial(s *authv1beta1.ResourceSlice, reason string) string {
	var command string
	switch tenant := cmp.Or(e.cluster.Installation.ClusterID, "NAME"); reason {
	case authv1beta1.ReasonTenantDrained:
		command = "activate tenant " + tenant
	case authv1beta1.ReasonTenantCordoned:
		command = "uncordon tenant " + tenant
	case authv1beta1.ReasonSliceCordoned:
		command = "uncordon resourceslice " + s.Name
	default:
		return fmt.Sprintf("ask for something else, or ask the administrator of cluster %s to fix what it names", e.id)
	}
	return fmt.Sprintf("if you no longer want this, in cluster %s: liqoctl %s", e.id, command)
}

// apiServerFindings are what is wrong with the API server of the peer: the controller asks it every 15 seconds.
func (e *end) apiServerFindings() []Finding {
	f := e.peer.Foreign
	for _, c := range f.Status.Conditions {
		if c.Type == corev1beta1.ConditionAPIServer && !c.Status.Well() {
			return []Finding{fail("%s", c.Message).because("it is down, or not reachable from the pods of this cluster, or the credentials were revoked").
				fix("see that cluster %s answers at %s, or set apiServer.address there to an address that can be reached from here, or name a proxy with --proxy-url; %s",
					e.id, f.Status.APIServerURL, e.identityAgain()).
				on("ForeignCluster " + f.Name)}
		}
	}
	return nil
}
