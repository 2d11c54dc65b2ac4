// Package identity makes a kubeconfig of what a provider has granted: an Identity becomes a Secret that every client of
// the provider reads, and rereads when it changes.
package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

const (
	// secretPrefix begins the name of the Secret of an Identity.
	secretPrefix = "kubeconfig-"
	// recheck is how soon a Secret of somebody else is looked at again: its end wakes nobody.
	recheck = 30 * time.Second
)

// Reconciler answers Identities.
type Reconciler struct {
	client.Client
	// Reader reads past the cache, which sees only Secrets that are ours.
	Reader   client.Reader
	Recorder events.EventRecorder
	Cluster  identify.Cluster
	Now      func() time.Time
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the reconciler to mgr. secrets sees the Secrets of peerings.
func SetupWithManager(mgr ctrl.Manager, secrets cache.Cache, cluster identify.Cluster) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Cluster: cluster, Now: time.Now,
	}
	return controllers.New(mgr, "identity", controllers.Options{}).
		For(&authv1beta1.Identity{}).
		// A Secret that somebody deletes or changes comes back.
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, handler.TypedEnqueueRequestForOwner[*corev1.Secret](
			mgr.GetScheme(), mgr.GetRESTMapper(), &authv1beta1.Identity{}, handler.OnlyControllerOwner()))).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile makes the Secret of one Identity.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	i := new(authv1beta1.Identity)
	if err := r.Get(ctx, req.NamespacedName, i); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !i.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	key, err := r.Cluster.Key(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	secret, c, again := plan(i, key, r.Now())
	if secret != nil {
		_, err := apply.Object(ctx, r.Client, r.Reader, secret)
		if theirs := new(apply.ForeignError); errors.As(err, &theirs) {
			c, secret, again = condition(authv1beta1.ReasonSecretInTheWay, "%v", theirs), nil, recheck
		} else if err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.status(ctx, i, secret, c); err != nil || secret == nil {
		return ctrl.Result{RequeueAfter: again}, err
	}
	err = r.tieProof(ctx, i)
	if apierrors.IsForbidden(err) { // by a policy: the Identity serves without
		log.FromContext(ctx).Info("the signed nonce will stay when the peering ends", "why", err.Error())
		err = nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// tieProof makes the Identity the owner of the signed nonce that has led to it. Liqo's liqoctl leaves that Secret when a
// peering ends, and refuses to peer again while it holds a nonce that the provider does not have any more.
func (r *Reconciler) tieProof(ctx context.Context, i *authv1beta1.Identity) error {
	if i.Spec.Type != authv1beta1.ControlPlaneIdentity {
		return nil
	}
	s := new(corev1.Secret)
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: authv1beta1.SignedNonceSecret}, s)
	if err != nil || s.Labels[authv1beta1.LabelSignedNonce] != networkingv1beta1.LabelTrue ||
		s.Labels[networkingv1beta1.LabelRemoteClusterID] != string(i.Spec.ClusterID) || len(s.OwnerReferences) > 0 {
		return client.IgnoreNotFound(err)
	}
	// Of one that has just ended, the cache may not know yet, and the nonce be that of the next handshake.
	live := new(authv1beta1.Identity)
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(i), live); err != nil || live.UID != i.UID || !live.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(apply.TieTo(ctx, r.Client, live, s))
}

// plan decides what the Secret holds. It is nil where none can be made; one that is there stays, since it may still
// serve.
func plan(i *authv1beta1.Identity, key credentials.Key, now time.Time) (secret *corev1.Secret, c metav1.Condition, again time.Duration) {
	if len(validation.IsDNS1123Label(string(i.Spec.ClusterID))) > 0 {
		return nil, condition(authv1beta1.ReasonClusterIDInvalid, "clusterID %q is not the ID of a cluster", text.Quoted(string(i.Spec.ClusterID))), 0
	}
	p := i.Spec.AuthParams
	if len(p.SignedCRT) == 0 {
		why := "authParams.signedCRT is empty: the provider has not signed a certificate"
		if p.AwsConfig != nil {
			why = "the provider grants an IAM user of EKS instead of a certificate, which is not supported: ask its administrator for credentials, and put a kubeconfig with them into a Secret"
		}
		return nil, condition(authv1beta1.ReasonCredentialsMissing, "%s", why), 0
	}
	certificate, err := credentials.ParseCertificate(p.SignedCRT)
	if err == nil && !certificate.Of(key) {
		err = fmt.Errorf("it is not for the key of this cluster (Secret %s)", authv1beta1.KeysSecret)
	}
	if err != nil {
		return nil, condition(authv1beta1.ReasonCertificateInvalid, "authParams.signedCRT: %v", err), 0
	}
	if left := certificate.NotAfter.Sub(now); left <= 0 {
		return nil, condition(authv1beta1.ReasonCertificateExpired, "the certificate has expired at %s: create the Identity again (liqoctl authenticate)", certificate.NotAfter.UTC().Format(time.RFC3339)), 0
	} else {
		again = left
	}
	a := credentials.Access{
		Cluster: string(i.Spec.ClusterID), User: i.Name, Server: p.APIServer, CA: p.CA, Certificate: p.SignedCRT, Key: key,
	}
	if p.ProxyURL != nil {
		a.Proxy = *p.ProxyURL
	}
	if i.Spec.Namespace != nil {
		a.Namespace = *i.Spec.Namespace
	}
	kubeconfig, err := credentials.WriteKubeconfig(a)
	if err != nil {
		return nil, condition(authv1beta1.ReasonKubeconfigInvalid, "no kubeconfig can be made of authParams: %v", err), again
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: secretPrefix + i.Name,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: string(i.Spec.ClusterID),
				authv1beta1.LabelIdentityType: string(i.Spec.Type),
			},
			OwnerReferences: apply.Controller(i, authv1beta1.GroupVersion.WithKind("Identity")),
		},
		Data: map[string][]byte{authv1beta1.KubeconfigKey: kubeconfig},
	}
	if i.Spec.Namespace != nil {
		secret.Annotations = map[string]string{authv1beta1.AnnotationRemoteTenantNamespace: *i.Spec.Namespace}
	}
	if slice := i.Labels[authv1beta1.LabelResourceSliceName]; slice != "" {
		secret.Labels[authv1beta1.LabelResourceSliceName] = slice
	}
	c = condition(authv1beta1.ReasonIdentityReady, "Secret %s holds the kubeconfig, valid until %s", secret.Name, certificate.NotAfter.UTC().Format(time.RFC3339))
	c.Status = metav1.ConditionTrue
	return secret, c, again
}

func condition(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Type: authv1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (r *Reconciler) status(ctx context.Context, i *authv1beta1.Identity, secret *corev1.Secret, c metav1.Condition) error {
	wrote, err := apply.Status(ctx, r.Client, i, func() {
		if secret != nil {
			i.Status.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: secret.Name}
		}
		c.ObservedGeneration = i.Generation
		meta.SetStatusCondition(&i.Status.Conditions, c)
	})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if wrote {
		log.FromContext(ctx).Info("decided", "reason", c.Reason, "clusterID", i.Spec.ClusterID)
		if c.Status == metav1.ConditionFalse {
			apply.Event(r.Recorder, i, corev1.EventTypeWarning, c.Reason, "Identify", c.Message)
		}
	}
	return nil
}
