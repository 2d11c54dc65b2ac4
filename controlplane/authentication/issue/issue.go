package issue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// secretPrefix begins the names of the Secrets that keep what was signed.
const secretPrefix = "liqo-remote-certificate"

// Keys of these Secrets.
const (
	requestKey     = "csr"
	certificateKey = "certificate"
)

// unsignedAfter is how long a signer gets before its silence is called a problem.
const unsignedAfter = 30 * time.Second

// Issuer issues the credentials of one cluster.
type Issuer struct {
	// Client writes and Reader reads past every cache.
	Client client.Client
	Reader client.Reader
	// APIServer is where consumers reach this cluster.
	APIServer APIServer
	// Lifetime is how long certificates are to be valid; zero: as long as the signer likes. Signers may shorten it.
	Lifetime time.Duration
	// Now is the time.
	Now func() time.Time
}

// Grant is what to issue, to whom.
type Grant struct {
	// Owner is the object on whose behalf it is issued. What is made in its namespace goes with it.
	Owner client.Object
	// Consumer is the ID of the cluster that gets it.
	Consumer string
	// Slice names the ResourceSlice of the identity; empty: it is that of the control plane.
	Slice string
	// Request is the certificate signing request. The caller has judged it.
	Request []byte
	// Subject is whom the certificate names.
	Subject credentials.Subject
	// Proxy is the URL of the proxy that the consumer wants; nil: none.
	Proxy *string
}

// Problem is why nothing can be issued, or not yet. It is no failure of ours.
type Problem struct {
	// Reason is one of this group's condition reasons.
	Reason string
	// Message says what to do.
	Message string
	// Retry is when to ask again; zero: when something changes.
	Retry time.Duration
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch;create
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=create;get;list;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client,verbs=approve

// Issue returns credentials, and when to ask for newer ones, or a problem.
func (i *Issuer) Issue(ctx context.Context, g Grant) (*authv1beta1.AuthParams, time.Duration, *Problem, error) {
	server, problem, err := i.APIServer.lookup(ctx, i.Reader)
	if problem != nil || err != nil {
		return nil, 0, problem, err
	}
	kept, problem, err := i.kept(ctx, g)
	if problem != nil || err != nil {
		return nil, 0, problem, err
	}
	valid, fresh := judge(kept, g, i.Now())
	if !fresh {
		var certificate []byte
		certificate, problem, err = i.sign(ctx, g, kept[certificateKey])
		switch {
		case err != nil:
			return nil, 0, nil, err
		case problem == nil:
			kept = map[string][]byte{requestKey: g.Request, certificateKey: certificate}
			if err := i.keep(ctx, g, kept); err != nil {
				return nil, 0, nil, err
			}
		case !valid: // else the old one serves while the new one is made
			return nil, 0, problem, nil
		}
	}
	params := &authv1beta1.AuthParams{CA: server.CA, SignedCRT: kept[certificateKey], APIServer: server.URL, ProxyURL: g.Proxy}
	if problem != nil {
		return params, problem.Retry, nil, nil
	}
	c, err := credentials.ParseCertificate(kept[certificateKey])
	if err != nil {
		return nil, 0, nil, err
	}
	return params, max(time.Second, c.RenewAt().Sub(i.Now())), nil, nil
}

// EarlierRemains is the problem that what, which was made for an earlier object of a kind, is still there.
// It is not taken over: the garbage collector may be about to delete it.
func EarlierRemains(what, kind string) *Problem {
	return &Problem{
		Reason: authv1beta1.ReasonEarlierRemains, Retry: time.Second,
		Message: fmt.Sprintf("%s is that of an earlier %s, and the garbage collector of the cluster is to delete it. If it stays, see whether kube-controller-manager works, or delete it", what, kind),
	}
}

// judge tells whether the certificate that was kept is good for the grant, and whether it will be for long.
func judge(kept map[string][]byte, g Grant, now time.Time) (valid, fresh bool) {
	c, err := credentials.ParseCertificate(kept[certificateKey])
	if err != nil || c.Subject != g.Subject || !c.For(g.Request) || !now.Before(c.NotAfter) {
		return false, false
	}
	return true, now.Before(c.RenewAt())
}

func (g Grant) secretName() string { return secretName(g.Slice) }

func secretName(slice string) string {
	if slice == "" {
		return secretPrefix
	}
	return secretPrefix + "-" + slice
}

// Forget deletes what is left of requests for an object that has its certificate, or is gone: the Tenant of a namespace, or
// a ResourceSlice by its name. A CertificateSigningRequest is in no namespace, so nothing can own it, and whoever decides from a cache may
// have made one after the object went.
func (i *Issuer) Forget(ctx context.Context, namespace, slice string) error {
	var made certificatesv1.CertificateSigningRequestList
	err := i.Reader.List(ctx, &made, client.MatchingLabels{
		networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, authv1beta1.LabelIssuedFor: issuedFor(namespace, slice),
	})
	if err != nil {
		return fmt.Errorf("list CertificateSigningRequests: %w", err)
	}
	for k := range made.Items {
		if err := i.delete(ctx, &made.Items[k]); err != nil {
			return err
		}
	}
	return nil
}

// issuedFor is a value of [authv1beta1.LabelIssuedFor]: a hash, since a label has less room than two names.
func issuedFor(namespace, slice string) string {
	return shortHash([]byte(namespace), []byte(secretName(slice)))
}

// kept returns what was signed before. A Secret of another owner holds nothing of ours, and nothing is signed while
// there is no place to keep it.
func (i *Issuer) kept(ctx context.Context, g Grant) (map[string][]byte, *Problem, error) {
	var s corev1.Secret
	err := i.Reader.Get(ctx, client.ObjectKey{Namespace: g.Owner.GetNamespace(), Name: g.secretName()}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get the Secret of the certificate: %w", err)
	}
	owner := &metav1.OwnerReference{UID: g.Owner.GetUID()}
	if c := metav1.GetControllerOf(&s); c != nil && c.Name == g.Owner.GetName() && c.UID != owner.UID {
		p := EarlierRemains("Secret "+s.Name, c.Kind)
		// The clock of the API server may be another: then this is told too early or too late, and is true.
		if i.Now().Sub(g.Owner.GetCreationTimestamp().Time) > unsignedAfter {
			p.Retry = unsignedAfter
		}
		return nil, p, nil
	}
	if !apply.Ours(i.Client.Scheme(), &s, owner) {
		return nil, &Problem{
			Reason:  authv1beta1.ReasonSecretInTheWay,
			Message: fmt.Sprintf("Secret %s is not the controller's, which keeps the certificate under this name: delete it", s.Name), Retry: unsignedAfter,
		}, nil
	}
	if !metav1.IsControlledBy(&s, g.Owner) {
		return nil, nil, nil // left behind by an earlier owner
	}
	return s.Data, nil, nil
}

func (i *Issuer) keep(ctx context.Context, g Grant, data map[string][]byte) error {
	kind, err := i.Client.GroupVersionKindFor(g.Owner)
	if err != nil {
		return err
	}
	_, err = apply.Object(ctx, i.Client, i.Reader, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Owner.GetNamespace(), Name: g.secretName(),
			Labels:          map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: g.Consumer},
			OwnerReferences: apply.Controller(g.Owner, kind),
		},
		Data: data,
	})
	return err
}

// usages are what certificates may be used for.
var usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}

// sign has the cluster sign the request of a grant. The certificate that it is to replace makes the name of the
// CertificateSigningRequest another one, so that an old answer is not taken for the new one. So does the lifetime: what was
// asked for with another one is not in the way after a restart.
func (i *Issuer) sign(ctx context.Context, g Grant, old []byte) ([]byte, *Problem, error) {
	want := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name: requestName(g, old, i.Lifetime),
			Labels: map[string]string{
				authv1beta1.LabelTenantCSR: networkingv1beta1.LabelTrue, networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue,
				networkingv1beta1.LabelRemoteClusterID: g.Consumer, authv1beta1.LabelIssuedFor: issuedFor(g.Owner.GetNamespace(), g.Slice),
			},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: g.Request, SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: usages},
	}
	if i.Lifetime > 0 {
		want.Spec.ExpirationSeconds = new(int32(i.Lifetime / time.Second))
	}
	r := new(certificatesv1.CertificateSigningRequest)
	switch err := i.Reader.Get(ctx, client.ObjectKeyFromObject(want), r); {
	case apierrors.IsNotFound(err):
		if going, err := i.goes(ctx, g.Owner); going || err != nil {
			return nil, &Problem{Reason: authv1beta1.ReasonCertificatePending, Message: "the namespace is being deleted", Retry: unsignedAfter}, err
		}
		r = want.DeepCopy()
		if err := i.Client.Create(ctx, r); err != nil {
			return nil, nil, fmt.Errorf("create a CertificateSigningRequest: %w", err)
		}
	case err != nil:
		return nil, nil, fmt.Errorf("get the CertificateSigningRequest: %w", err)
	}
	// Its name can be guessed. Only what we would have made is approved.
	if field := differs(r.Spec, want.Spec); field != "" {
		return nil, &Problem{
			Reason:  authv1beta1.ReasonCertificateRefused,
			Message: fmt.Sprintf("CertificateSigningRequest %s is not the controller's: its spec.%s is not what the controller asks for. Delete it", r.Name, field), Retry: unsignedAfter,
		}, nil
	}
	return i.answer(ctx, g, r)
}

// differs names a field by which a request asks for another certificate than the wanted one; empty: there is none. Who
// made the request is not compared: a signer puts nothing of that into the certificate, and the controller may have had
// another user when it made it.
func differs(r, want certificatesv1.CertificateSigningRequestSpec) string {
	switch {
	case !bytes.Equal(r.Request, want.Request):
		return "request"
	case r.SignerName != want.SignerName:
		return "signerName"
	case !slices.Equal(r.Usages, want.Usages):
		return "usages"
	case !equality.Semantic.DeepEqual(r.ExpirationSeconds, want.ExpirationSeconds):
		return "expirationSeconds"
	}
	return ""
}

// goes tells whether the namespace of an object is being deleted. A request that was made
// now would be left behind: what was signed is deleted before the object is, and nobody
// would come for it again.
func (i *Issuer) goes(ctx context.Context, o client.Object) (bool, error) {
	var n corev1.Namespace
	if err := i.Reader.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, &n); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return !n.DeletionTimestamp.IsZero(), nil
}

// answer approves a request, and returns the certificate when it is there.
func (i *Issuer) answer(ctx context.Context, g Grant, r *certificatesv1.CertificateSigningRequest) ([]byte, *Problem, error) {
	var approved time.Time
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			approved = c.LastUpdateTime.Time
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, &Problem{
				Reason:  authv1beta1.ReasonCertificateRefused,
				Message: fmt.Sprintf("CertificateSigningRequest %s: %s: %s. Delete it to try again", r.Name, c.Reason, c.Message), Retry: unsignedAfter,
			}, i.deleteOld(ctx, r)
		}
	}
	if approved.IsZero() {
		approved = i.Now()
		if err := Approve(ctx, i.Client, r, "TenantAuthorized", "for the Tenant of cluster "+g.Consumer, approved); err != nil {
			return nil, nil, err
		}
	}
	if len(r.Status.Certificate) == 0 {
		// By our clock alone: that of the API server, which says when the request was made, may be another.
		waited := i.Now().Sub(approved)
		p := &Problem{Reason: authv1beta1.ReasonCertificatePending, Message: "the certificate is being signed", Retry: time.Second}
		if waited > unsignedAfter {
			p.Retry = unsignedAfter
			p.Message = fmt.Sprintf("nobody has signed CertificateSigningRequest %s for %v: this cluster may have no signer for %s. "+
				"Give the consumer credentials by other means, and set authzPolicy to %s",
				r.Name, waited.Round(time.Second), r.Spec.SignerName, authv1beta1.TolerateNoHandshake)
		}
		return nil, p, nil
	}
	c, err := credentials.ParseCertificate(r.Status.Certificate)
	if err == nil && (c.Subject != g.Subject || !c.For(g.Request)) {
		err = fmt.Errorf("it is for %v", c.Subject)
	}
	if err != nil {
		return nil, &Problem{
			Reason:  authv1beta1.ReasonCertificateRefused,
			Message: fmt.Sprintf("the signer of this cluster has signed another certificate than was asked for: %v. Delete CertificateSigningRequest %s to try again", err, r.Name),
			Retry:   unsignedAfter,
		}, i.deleteOld(ctx, r)
	}
	// With those that were made for requests that are not asked any more.
	return r.Status.Certificate, nil, i.Forget(ctx, g.Owner.GetNamespace(), g.Slice)
}

// Approve approves a request, which the caller has judged.
func Approve(ctx context.Context, c client.Client, r *certificatesv1.CertificateSigningRequest, reason, message string, at time.Time) error {
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: metav1.NewTime(at),
	})
	if err := c.SubResource("approval").Update(ctx, r); err != nil {
		return fmt.Errorf("approve the CertificateSigningRequest: %w", err)
	}
	return nil
}

// deleteOld deletes a request of long ago that was not answered as it should be, so that it is tried again.
func (i *Issuer) deleteOld(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	if i.Now().Sub(r.CreationTimestamp.Time) < time.Hour {
		return nil
	}
	return i.delete(ctx, r)
}

func (i *Issuer) delete(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	return apply.Delete(ctx, i.Client, r)
}

// requestName is the name of the CertificateSigningRequest of a grant.
func requestName(g Grant, old []byte, lifetime time.Duration) string {
	return "liqo-identity-" + shortHash([]byte(g.Owner.GetUID()), g.Request, old, []byte(lifetime.String()))
}

func shortHash(parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	sum := h.Sum(nil)
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
