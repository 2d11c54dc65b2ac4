package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// recheck is how soon a Secret that does not serve is looked at again: time may mend it, or an older one go.
const recheck = time.Minute

// Reconciler keeps a session for each Secret that holds the identity of a control plane.
type Reconciler struct {
	client.Client
	Secrets  client.Reader
	Recorder events.EventRecorder
	Cluster  identify.Cluster
	Now      func() time.Time

	// Kinds are those that are copied.
	Kinds []schema.GroupVersionKind

	// records say what is to be taken back after a restart.
	records *records

	mu sync.Mutex
	// lifetime ends with the manager.
	lifetime context.Context
	sessions map[types.NamespacedName]*running
	sweeps   map[peer]*sweep
}

// running is a session with what it was made of.
type running struct {
	*session
	stop context.CancelFunc
	done chan struct{}
	// kubeconfig is what its client was made of.
	kubeconfig []byte
	// refused is why there is no session, if there is none; it was told.
	refused string
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices;renews,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices/status;renews/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=liqo-copies,verbs=delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the reconciler to mgr. secrets sees the Secrets of peerings; namespaceMaps has NamespaceMaps copied
// as well.
func SetupWithManager(mgr ctrl.Manager, secrets cache.Cache, cluster identify.Cluster, namespaceMaps bool) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Secrets: secrets, Recorder: mgr.GetEventRecorder("liqo-controller"), Cluster: cluster, Now: time.Now,
		Kinds: copied, sessions: map[types.NamespacedName]*running{},
		records: &records{Client: mgr.GetClient(), live: mgr.GetAPIReader()}, sweeps: map[peer]*sweep{},
	}
	if err := mgr.Add(r); err != nil {
		return err
	}
	watched := []client.Object{&authv1beta1.ResourceSlice{}, &authv1beta1.Renew{}}
	if namespaceMaps {
		r.Kinds = append(slices.Clone(copied), namespaceMap)
		watched = append(watched, &offloadingv1beta1.NamespaceMap{})
	}
	for _, o := range watched {
		informer, err := mgr.GetCache().GetInformer(context.Background(), o)
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: r.changed, DeleteFunc: r.changed, UpdateFunc: func(_, o any) { r.changed(o) },
		}); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return controllers.New(mgr, "replication", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, s *corev1.Secret) []ctrl.Request {
				// One that is no identity any more must end its session, and makes way for another.
				return append(r.identitiesFor(ctx, s.Labels[networkingv1beta1.LabelRemoteClusterID]), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			}))).
		Complete(r)
}

// identitiesFor returns the Secrets for one provider.
func (r *Reconciler) identitiesFor(ctx context.Context, provider string) []ctrl.Request {
	return enqueue.Each(ctx, r.Secrets, new(corev1.SecretList), client.ObjectKeyFromObject,
		client.MatchingLabels{authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity), networkingv1beta1.LabelRemoteClusterID: provider})
}

// Start holds the context of the sessions, and takes back what an earlier controller could not. The end of the manager
// ends all of them, and takes nothing back: the next leader goes on.
func (r *Reconciler) Start(ctx context.Context) error {
	r.mu.Lock()
	r.lifetime = ctx
	r.mu.Unlock()
	r.sweepOrphans(ctx)
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.session != nil {
			<-s.done
		}
	}
	for _, s := range r.sweeps {
		<-s.done
	}
	return nil
}

// changed wakes the sessions of the namespace of an object.
func (r *Reconciler) changed(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	object, err := meta.Accessor(o)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.sessions {
		if name.Namespace == object.GetNamespace() && s.session != nil {
			s.session.changed()
		}
	}
}

// Reconcile starts, replaces or ends the session of one Secret.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lifetime == nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil // the manager is just starting
	}
	s := new(corev1.Secret)
	err := r.Secrets.Get(ctx, req.NamespacedName, s)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	now := r.sessions[req.NamespacedName]
	if apierrors.IsNotFound(err) || !s.DeletionTimestamp.IsZero() || !isIdentity(s) {
		r.end(req.NamespacedName, true)
		delete(r.sessions, req.NamespacedName)
		r.forget(now)
		return ctrl.Result{}, nil
	}
	own, err := r.Cluster.ID(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var all corev1.SecretList
	if err := r.Secrets.List(ctx, &all, client.MatchingLabels{authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity)}); err != nil {
		return ctrl.Result{}, err
	}
	p, cfg, reason, why := judge(s, all.Items, own, r.Now())
	if reason != "" {
		r.refuse(req.NamespacedName, s, reason, why)
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	kubeconfig := s.Data[authv1beta1.KubeconfigKey]
	if now != nil && now.session != nil && now.peer == p && bytes.Equal(now.kubeconfig, kubeconfig) {
		return r.untilExpiry(cfg), nil
	}
	// With newer credentials for the same place it goes on; copies at another place are taken back.
	r.end(req.NamespacedName, now != nil && now.session != nil && now.peer != p)
	if err := r.begin(req.NamespacedName, s, p, cfg); err != nil {
		r.refuse(req.NamespacedName, s, authv1beta1.ReasonKubeconfigInvalid, err.Error())
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	r.forget(now)
	return r.untilExpiry(cfg), nil
}

// untilExpiry has the Secret judged again when its certificate expires.
func (r *Reconciler) untilExpiry(cfg *rest.Config) ctrl.Result {
	c, err := credentials.ParseCertificate(cfg.CertData)
	if err != nil {
		return ctrl.Result{} // a token
	}
	return ctrl.Result{RequeueAfter: max(time.Second, c.NotAfter.Sub(r.Now()))}
}

// refuse ends the session of a Secret and tells its author why. What was copied stays: the Secret may be mended.
func (r *Reconciler) refuse(name types.NamespacedName, s *corev1.Secret, reason, why string) {
	r.end(name, false)
	if old := r.sessions[name]; old == nil || old.refused != why {
		r.event(s, corev1.EventTypeWarning, reason, why)
	}
	r.sessions[name] = &running{refused: why}
}

// end ends a session and, if it is asked to, has it take back what it has copied.
func (r *Reconciler) end(name types.NamespacedName, sweep bool) {
	s := r.sessions[name]
	if s == nil || s.session == nil {
		return
	}
	s.stop()
	delete(r.sessions, name)
	if sweep {
		r.sweep(s.session, s.done)
	}
}

func (r *Reconciler) begin(name types.NamespacedName, secret *corev1.Secret, p peer, cfg *rest.Config) error {
	remote, err := remoteClient(r.Client, cfg, r.Kinds)
	if err != nil {
		return err
	}
	logger := log.FromContext(r.lifetime).WithName("replication").WithValues("clusterID", p.provider)
	about := secret.DeepCopy()
	about.Data = nil
	kubeconfig := bytes.Clone(secret.Data[authv1beta1.KubeconfigKey])
	s := newSession(p, r.Kinds, r.Client, remote, logger, func(err error) { r.report(about, p, logger, err) })
	s.keep = func(ctx context.Context) error { return r.records.keep(ctx, p, kubeconfig) }
	r.stopSweep(p) // what it would take back is wanted again
	ctx, stop := context.WithCancel(r.lifetime)
	n := &running{session: s, stop: stop, done: make(chan struct{}), kubeconfig: kubeconfig}
	r.sessions[name] = n
	go func() {
		defer close(n.done)
		s.run(ctx)
	}()
	return nil
}

// remoteClient is a client that knows the kinds that are copied and asks the server for no others. The warnings of the server
// are not logged: there may be one in each answer, in the words of another party.
func remoteClient(local client.Client, cfg *rest.Config, kinds []schema.GroupVersionKind) (client.WithWatch, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	http, err := httpClient(cfg)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return client.NewWithWatch(cfg, client.Options{HTTPClient: http, Scheme: local.Scheme(), Mapper: mapper})
}

// report tells the author of a Secret how the session fares.
func (r *Reconciler) report(secret *corev1.Secret, p peer, logger interface {
	Info(string, ...any)
}, err error) {
	if err == nil {
		logger.Info("replicating", "namespace", p.here, "remoteNamespace", p.there)
		r.event(secret, corev1.EventTypeNormal, authv1beta1.ReasonReplicating, fmt.Sprintf("what is for cluster %s is copied to its namespace %s", p.provider, p.there))
		return
	}
	reason, note := obstacle(p, err)
	r.event(secret, corev1.EventTypeWarning, reason, note)
}

// obstacle returns the reason and the note of the event about an error of a session.
func obstacle(p peer, err error) (reason, note string) {
	switch {
	case errors.As(err, new(*answerError)):
		return authv1beta1.ReasonAnswerInvalid, fmt.Sprintf("cluster %s gives an invalid answer, which is not used: %v", p.provider, err)
	case apierrors.IsUnauthorized(err):
		return authv1beta1.ReasonCredentialsRefused, fmt.Sprintf("cluster %s does not accept the credentials of this kubeconfig: %v", p.provider, err)
	case apierrors.IsAlreadyExists(err):
		return authv1beta1.ReasonNameTaken, fmt.Sprintf(
			"namespace %s of cluster %s has an object of its own with the name of one that is to be copied: give one of them another name (%v)", p.there, p.provider, err)
	case apierrors.IsForbidden(err) && !byAdmission(err):
		return authv1beta1.ReasonRoleBindingMissing, fmt.Sprintf(
			"cluster %s denies access to its namespace %s: its administrator must bind the user of this kubeconfig to ClusterRole %s there (%v)", p.provider, p.there, authv1beta1.RemoteControlPlaneRole, err)
	}
	if _, refused := apply.Refusal(err); refused {
		return authv1beta1.ReasonCopyRefused, fmt.Sprintf("cluster %s refuses an object that is copied to its namespace %s: %v", p.provider, p.there, err)
	}
	return authv1beta1.ReasonAPIServerUnreachable, fmt.Sprintf("cluster %s: %v", p.provider, err)
}

// byAdmission tells whether a policy, a webhook or a quota has denied a request, and not the want of a role: the API
// server gives both the same status, and only its words differ (k8s.io/apiserver/pkg/admission).
func byAdmission(err error) bool {
	said := []string{"denied request: ", "denied the request", "exceeded quota", "status unknown for quota"}
	return slices.ContainsFunc(said, func(words string) bool { return strings.Contains(err.Error(), words) })
}

func (r *Reconciler) event(s *corev1.Secret, kind, reason, note string) {
	// The note may be in another party's words.
	r.Recorder.Eventf(s, nil, kind, reason, "Replicate", "%s", text.Printable(note, 1000))
}
