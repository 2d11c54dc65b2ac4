package peering

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// Credentials that users make take the place of a handshake where the provider signs no certificates, or has users of
// its own. The steps are in any order:
//
//	provider: CreateTenant    consumer: CreateIdentity

// NewTenantObjects returns what a provider has of a consumer that got its credentials by other means than a handshake:
// the tenant namespace, the binding of the user in these credentials, and the Tenant. m names the consumer; liqo says that
// Liqo runs at the provider.
func NewTenantObjects(m Metadata, user string, liqo bool) (*corev1.Namespace, *rbacv1.RoleBinding, *authv1beta1.Tenant) {
	space := NewTenantNamespace(Metadata{Name: m.Namespace, RemoteClusterID: m.RemoteClusterID, Labels: m.Labels, Annotations: m.Annotations}, liqo)
	binding := &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: m.of("", map[string]string{LabelManagedBy: FieldOwner}),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: authv1beta1.RemoteControlPlaneRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	binding.Name = authv1beta1.RemoteControlPlaneRole // not that which the controller makes after a handshake
	tenant := &authv1beta1.Tenant{
		ObjectMeta: m.of(m.RemoteClusterID, nil),
		Spec: authv1beta1.TenantSpec{
			ClusterID: authv1beta1.ClusterID(m.RemoteClusterID), AuthzPolicy: authv1beta1.TolerateNoHandshake, TenantCondition: authv1beta1.TenantActive,
		},
	}
	tenant.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind("Tenant"))
	return space, binding, tenant
}

// CreateTenant lets a consumer ask for resources as a user of the provider, whose credentials it gets by other means than
// a handshake. liqo tells whether Liqo runs at the provider, if the tenant namespace is to be made.
func CreateTenant(ctx context.Context, provider *access.Cluster, consumerID, user string,
	liqo func(context.Context, *access.Cluster) (bool, error), o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := prepareAlone(ctx, provider, consumerID, &o, tell, (*end).rightsToCreateTenant)
	if err != nil {
		return err
	}
	e.liqo = liqo
	_, binding, tenant := NewTenantObjects(e.metadata(""), user, false) // without the namespace
	switch t, err := e.tenantOf(ctx); {
	case err != nil:
		return err
	case t != nil && t.Spec.AuthzPolicy != authv1beta1.TolerateNoHandshake:
		return e.Errorf("cluster %s already has an identity from a handshake, Tenant %s/%s; nothing was changed: remove it first with 'liqoctl unauthenticate'", consumerID, t.Namespace, t.Name)
	case t != nil:
		tenant.Name = t.Name
	}
	var p plan
	space := p.add(nil, e.tenantNamespace())
	bound := p.add(after(space), &step{
		in: e.Cluster, waiting: "Ensuring the RoleBinding of user " + user, done: "RoleBinding correctly ensured",
		try: func(ctx context.Context) (string, error) { return "", e.ensureBinding(ctx, binding) },
	})
	p.add(after(bound), &step{
		in: e.Cluster, waiting: "Waiting for the Tenant to be ready", done: "Tenant status is filled", clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			t := new(authv1beta1.Tenant)
			switch err := e.Client.Get(ctx, client.ObjectKeyFromObject(tenant), t); {
			case apierrors.IsNotFound(err):
				return "the controller has not processed the Tenant yet", e.Explain("create the Tenant", e.write.Create(ctx, tenant.DeepCopy()))
			case err != nil:
				return "", e.Explain("read the Tenant", err)
			case t.DeletionTimestamp != nil:
				return "an earlier Tenant is being deleted", nil
			}
			return tenantNotReady(t)
		},
	})
	if err := p.run(ctx, tell); err != nil {
		return err
	}
	tell.Done(e.Name, fmt.Sprintf("Cluster %s may ask for resources in namespace %s", consumerID, e.namespace))
	return nil
}

func (e *end) rightsToCreateTenant() (all []access.Permission) {
	if e.namespaceFound() == nil {
		all = append(all, access.Permission{Verb: "create", Resource: "namespaces"})
	}
	all = append(all, access.Permissions(authv1beta1.GroupVersion.Group, "tenants", e.namespace, "list", "get", "create")...)
	return append(all, access.Permissions(rbacv1.GroupName, "rolebindings", e.namespace, "get", "create")...)
}

// ensureBinding makes a RoleBinding. One that is there is left alone.
func (e *end) ensureBinding(ctx context.Context, wanted *rbacv1.RoleBinding) error {
	live := new(rbacv1.RoleBinding)
	err := e.Client.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	if apierrors.IsNotFound(err) {
		return e.Explain("create RoleBinding "+wanted.Name, e.write.Create(ctx, wanted.DeepCopy()))
	}
	if err == nil && (live.RoleRef != wanted.RoleRef || !equality.Semantic.DeepEqual(live.Subjects, wanted.Subjects)) {
		return &complaint{fmt.Sprintf("RoleBinding %s/%s already exists but does not bind exactly user %q: delete it, or name the user that it binds with --user", live.Namespace, live.Name, wanted.Subjects[0].Name)}
	}
	return e.Explain("read RoleBinding "+wanted.Name, err)
}

// Given are credentials for a provider that users have made.
type Given struct {
	// ProviderID is the ID of the provider, Namespace the tenant namespace there; empty: the default one.
	ProviderID, Namespace string
	// Kubeconfig is what credentials.ReadKubeconfig accepts: without programs and without files.
	Kubeconfig []byte
}

// NewIdentitySecret returns the Secret by which a consumer has the credentials. m names the provider.
func NewIdentitySecret(m Metadata, g Given) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: m.of(identityName(m.RemoteClusterID), map[string]string{authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity)}),
		Data:       map[string][]byte{authv1beta1.KubeconfigKey: g.Kubeconfig},
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, authv1beta1.AnnotationRemoteTenantNamespace, g.Namespace)
	return s
}

// CreateIdentity gives a consumer credentials for a provider, or newer ones, and waits until the provider's API server
// has accepted them.
func CreateIdentity(ctx context.Context, consumer *access.Cluster, g Given, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := prepareAlone(ctx, consumer, g.ProviderID, &o, tell, (*end).rightsToCreateIdentity)
	if err != nil {
		return err
	}
	var identities authv1beta1.IdentityList
	if err := e.list(ctx, "Identities", &identities, client.InNamespace(e.namespace)); err != nil {
		return err
	}
	for _, i := range identities.Items {
		if string(i.Spec.ClusterID) == g.ProviderID && i.Spec.Type == authv1beta1.ControlPlaneIdentity {
			return e.Errorf("there is already an identity from a handshake, Identity %s/%s; nothing was changed: remove it first with 'liqoctl unauthenticate'", i.Namespace, i.Name)
		}
	}
	if err := e.noOtherIdentity(ctx); err != nil {
		return err
	}
	g.Namespace = cmp.Or(g.Namespace, TenantNamespaceName(e.id))
	var before *corev1beta1.Condition // what the controller says of earlier credentials
	var replaced time.Time            // when these took their place; zero: they did not
	var lost []string                 // what is to be said of those that served, where these do not
	var p plan
	space := p.add(nil, e.tenantNamespace())
	given := p.add(after(space), &step{
		in: e.Cluster, waiting: "Ensuring the Secret of the identity", done: "Secret of the identity correctly ensured",
		try: func(ctx context.Context) (_ string, err error) {
			if before, err = e.apiServerCondition(ctx); err != nil {
				return "", err
			}
			wanted := NewIdentitySecret(e.metadata(""), g)
			made, changed, err := e.ensureIdentitySecret(ctx, wanted)
			if made || changed {
				replaced = time.Now()
			}
			if changed && before != nil && before.Status == corev1beta1.StatusEstablished {
				lost = []string{fmt.Sprintf("These credentials have replaced others in Secret %s/%s, which the API server accepted: to have those again, run the command with their kubeconfig", wanted.Namespace, wanted.Name)}
			}
			return "", err
		},
	})
	p.add(after(given), &step{
		in: e.Cluster, waiting: "Waiting for the API server of cluster " + g.ProviderID, done: "API server of cluster " + g.ProviderID + " accepts the credentials",
		detailed: true, clues: func(ctx context.Context, told string) []string { return append(lost, e.controllerClues(ctx, told)...) },
		try: func(ctx context.Context) (missing string, err error) {
			c, err := e.apiServerCondition(ctx)
			switch {
			case err != nil:
				return "", err
			case c == nil:
				return "the controller has not contacted the API server of cluster " + g.ProviderID + " yet", nil
			case c.Status != corev1beta1.StatusEstablished:
				return c.Message, nil
			case before != nil && equality.Semantic.DeepEqual(*before, *c) && time.Since(replaced) < timeToTry:
				return "the controller has not tried the new credentials at the API server of cluster " + g.ProviderID + " yet", nil
			}
			return "", nil
		},
	})
	if err := p.run(ctx, tell); err != nil {
		return err
	}
	if g.lacksRights(ctx) {
		tell.Warning(e.Name, fmt.Sprintf("The user of these credentials may not create ResourceSlices in namespace %s of cluster %s: if that is not the tenant namespace there, which 'liqoctl create tenant' prints, name it with --remote-tenant-namespace; "+
			"otherwise, in cluster %[2]s, bind the user to ClusterRole %[3]s in that namespace, as 'liqoctl create tenant' does", g.Namespace, g.ProviderID, authv1beta1.RemoteControlPlaneRole))
	}
	return nil
}

// timeToTry is how long it takes the controller at most to try new credentials, and to say that they do not serve: it asks at
// once, or after one round of questions. While they serve as well as those before, it says nothing new.
const timeToTry = 12 * time.Second

// apiServerCondition is what the controller says of the provider's API server; nil: nothing.
func (e *end) apiServerCondition(ctx context.Context) (*corev1beta1.Condition, error) {
	fc := new(corev1beta1.ForeignCluster)
	if err := e.Client.Get(ctx, client.ObjectKey{Name: e.peer.id}, fc); client.IgnoreNotFound(err) != nil {
		return nil, e.Explain("read ForeignCluster "+e.peer.id, err)
	}
	for i := range fc.Status.Conditions {
		if c := &fc.Status.Conditions[i]; c.Type == corev1beta1.ConditionAPIServer {
			return c, nil
		}
	}
	return nil, nil
}

// noOtherIdentity fails if there is a Secret under another name that the controllers prefer: the oldest one counts, in
// whichever namespace it is.
func (e *end) noOtherIdentity(ctx context.Context) error {
	all, err := e.identitySecrets(ctx)
	if apierrors.IsForbidden(err) {
		all, err = e.identitySecrets(ctx, client.InNamespace(e.namespace))
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return e.Explain("list Secrets", err)
	}
	own := e.named(identityName(e.peer.id))
	if len(all) > 0 {
		if name := client.ObjectKeyFromObject(&all[0]); name != own {
			return e.Errorf("there is already an identity for cluster %s, Secret %s; nothing was changed: delete it with 'kubectl -n %s delete secret %s', or put the new credentials into it", e.peer.id, name, name.Namespace, name.Name)
		}
	}
	return nil
}

// identitySecrets are the metadata of the Secrets with credentials for the peer, oldest first. Of the Secrets nothing else is
// read.
func (e *end) identitySecrets(ctx context.Context, in ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := e.Client.List(ctx, &list, append(in, client.MatchingLabels{
		authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity), networkingv1beta1.LabelRemoteClusterID: e.peer.id,
	})...)
	all := slices.DeleteFunc(list.Items, func(s metav1.PartialObjectMetadata) bool { return s.DeletionTimestamp != nil })
	slices.SortFunc(all, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return all, err
}

// timeToAskProvider bounds the question for rights.
const timeToAskProvider = 5 * time.Second

// lacksRights tells whether the provider lets these credentials ask for nothing. Where it cannot be asked from here, which is
// not where the controllers are, nothing is known.
func (g *Given) lacksRights(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, timeToAskProvider)
	defer cancel()
	config, err := credentials.ReadKubeconfig(g.Kubeconfig)
	if err != nil {
		return false
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false
	}
	review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: authv1beta1.GroupVersion.Group, Resource: "resourceslices", Namespace: g.Namespace,
		}},
	}, metav1.CreateOptions{})
	return err == nil && !review.Status.Allowed
}

func (e *end) rightsToCreateIdentity() (all []access.Permission) {
	all = append(e.rightsToSign(identityName(e.peer.id)), access.Permission{Verb: "get", Group: corev1beta1.GroupVersion.Group, Resource: "foreignclusters"})
	return append(all, access.Permission{Verb: "list", Group: authv1beta1.GroupVersion.Group, Resource: "identities", Namespace: e.namespace})
}

// ensureIdentitySecret makes the Secret, or gives the one that is there other credentials. made: there was
// none; changed: they are others than before.
func (e *end) ensureIdentitySecret(ctx context.Context, wanted *corev1.Secret) (made, changed bool, err error) {
	live := wanted.DeepCopy()
	if made, err = e.readOrCreate(ctx, live); made || err != nil {
		return made, false, err
	}
	differs := func(label string) bool { return live.Labels[label] != wanted.Labels[label] }
	if differs(authv1beta1.LabelIdentityType) || differs(networkingv1beta1.LabelRemoteClusterID) {
		return false, false, &complaint{fmt.Sprintf("Secret %s/%s already exists but is not an identity for cluster %s: delete or rename it", live.Namespace, live.Name, e.peer.id)}
	}
	const remote = authv1beta1.AnnotationRemoteTenantNamespace
	if bytes.Equal(live.Data[authv1beta1.KubeconfigKey], wanted.Data[authv1beta1.KubeconfigKey]) && live.Annotations[remote] == wanted.Annotations[remote] {
		return false, false, nil
	}
	before := live.DeepCopy()
	live.Data = wanted.Data
	metav1.SetMetaDataAnnotation(&live.ObjectMeta, remote, wanted.Annotations[remote])
	changed = !bytes.Equal(before.Data[authv1beta1.KubeconfigKey], wanted.Data[authv1beta1.KubeconfigKey])
	return false, changed, e.Explain("change Secret "+live.Name, e.write.Patch(ctx, live, client.MergeFrom(before)))
}

// givenCredentials tells of the credentials for the peer that users have made. What the user may not see is not there.
func (e *end) givenCredentials(ctx context.Context) (texts []string, err error) {
	all, err := e.identitySecrets(ctx, client.InNamespace(e.namespace))
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, e.Explain("list Secrets in namespace "+e.namespace, err)
	}
	for i := range all {
		if s := &all[i]; metav1.GetControllerOf(s) == nil {
			texts = append(texts, fmt.Sprintf("Secret %s/%s with credentials for cluster %s is kept, because no controller created it: 'kubectl -n %s delete secret %s' deletes it",
				s.Namespace, s.Name, e.peer.id, s.Namespace, s.Name))
		}
	}
	return texts, nil
}

// givenRights tells of the users to whom users have given the rights of the peer. What the user may not see is not there.
func (e *end) givenRights(ctx context.Context) (texts []string, err error) {
	all, err := e.consumerBindings(ctx)
	for i := range all {
		b := &all[i]
		if metav1.GetControllerOf(b) != nil || b.DeletionTimestamp != nil {
			continue
		}
		texts = append(texts, fmt.Sprintf("RoleBinding %s/%s, by which a user may write there for cluster %s, is kept, because no controller created it: 'kubectl -n %s delete rolebinding %s' deletes it",
			b.Namespace, b.Name, e.peer.id, b.Namespace, b.Name))
	}
	return texts, err
}

// consumerBindings are the RoleBindings with the rights of a consumer. What the user may not see is not there.
func (e *end) consumerBindings(ctx context.Context, of ...client.ListOption) ([]rbacv1.RoleBinding, error) {
	var list rbacv1.RoleBindingList
	if err := e.Client.List(ctx, &list, append(of, client.InNamespace(e.namespace))...); err != nil && !apierrors.IsForbidden(err) {
		return nil, e.Explain("list RoleBindings in namespace "+e.namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(b rbacv1.RoleBinding) bool {
		return b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != authv1beta1.RemoteControlPlaneRole
	}), nil
}

// ownBindings are those that CreateTenant has made.
func (e *end) ownBindings(ctx context.Context) ([]client.Object, error) {
	all, err := e.consumerBindings(ctx, client.MatchingLabels{LabelManagedBy: FieldOwner, networkingv1beta1.LabelRemoteClusterID: e.peer.id})
	return objects(all), err
}
