package peering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

// A peering user may do in one tenant namespace what Peer does there, and nothing elsewhere. Its kubeconfig serves the
// operator of the other cluster in place of an administrator's.

// maxLabel is the length of a label's value.
const maxLabel = 63

// peeringUser is one that is being made.
type peeringUser struct {
	*end
	subject credentials.Subject
	key     credentials.Key
	// request asks for certificate.
	request     *certificatesv1.CertificateSigningRequest
	certificate []byte
}

// GeneratePeeringUser makes a user for the operator of the cluster with ID peerID, and returns its kubeconfig. Nothing
// keeps the private key in it. With rsa the key is an RSA key, for TLS libraries that do not know Ed25519.
func GeneratePeeringUser(ctx context.Context, c *access.Cluster, peerID string, rsa bool, o Options, tell progress.Func) ([]byte, error) {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := lookAlone(ctx, c, peerID, &o, tell)
	if err != nil {
		return nil, err
	}
	if e.namespaceFound() != nil && !slices.Contains(e.found.labelled(peerID), e.namespace) {
		return nil, e.Errorf("namespace %s lacks the labels %s=true and %s=%s, from which the policies derive what a peering user may write there: nothing was changed; label it, or name another with %s",
			e.namespace, networkingv1beta1.LabelTenantNamespace, networkingv1beta1.LabelRemoteClusterID, peerID, e.Flag("namespace"))
	}
	config := rest.CopyConfig(c.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, e.Errorf("%w", err)
	}
	if err := e.Require(ctx, e.rightsToMakeUsers()...); err != nil {
		return nil, err
	}
	u, err := e.newPeeringUser(rsa)
	if err != nil {
		return nil, err
	}
	var p plan
	space := p.add(nil, e.tenantNamespace())
	signed := p.add(after(space), u.signed())
	p.add(after(signed), u.bound())
	err = p.run(ctx, tell)
	if left := u.forgetRequest(ctx); err == nil {
		err = left
	}
	if err != nil {
		return nil, err
	}
	text, err := credentials.WriteKubeconfig(credentials.Access{
		Cluster: e.id, User: u.subject.CommonName, Server: config.Host, CA: config.CAData,
		Certificate: u.certificate, Key: u.key, Namespace: e.namespace,
	})
	if err != nil {
		return nil, e.Errorf("a kubeconfig for the user would not work: %w; the address and the certificate authority are those of %s", err, e.Origin)
	}
	return text, nil
}

// DeletePeeringUsers revokes the rights of all peering users of a cluster. Their certificates remain valid but allow
// nothing.
func DeletePeeringUsers(ctx context.Context, c *access.Cluster, peerID string, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	ends := alone(c, peerID, &o)
	if err := ends.identify(ctx, tell); err != nil {
		return err
	}
	e := ends[0]
	s := &step{in: e.Cluster, waiting: "Deleting peering users", done: "There is no peering user for cluster " + peerID}
	s.try = func(ctx context.Context) (missing string, err error) {
		of := []client.ListOption{client.HasLabels{authv1beta1.LabelPeeringUser}, client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: peerID}}
		var bindings rbacv1.RoleBindingList
		var roles rbacv1.RoleList
		if err := errors.Join(e.list(ctx, "RoleBindings", &bindings, of...), e.list(ctx, "Roles", &roles, of...)); err != nil {
			return "", err
		}
		found := append(objects(bindings.Items), objects(roles.Items)...)
		if len(found) > 0 {
			s.done = "Peering users deleted: their kubeconfigs no longer work"
		}
		return e.removeAll(ctx, found...)
	}
	return s.runAlone(ctx, tell)
}

// lookAlone finds out what one cluster holds of a peering.
func lookAlone(ctx context.Context, c *access.Cluster, peerID string, o *Options, tell progress.Func) (*end, error) {
	ends := alone(c, peerID, o)
	if err := ends.identify(ctx, tell); err != nil {
		return nil, err
	}
	e := ends[0]
	if err := e.readPeering(ctx); err != nil {
		return nil, err
	}
	return e, e.chooseNamespace()
}

// rightsToMakeUsers are an administrator's: whoever may approve certificates for the API server can become any user.
func (e *end) rightsToMakeUsers() (all []access.Permission) {
	const certificates = "certificates.k8s.io"
	all = append(all,
		access.Permission{Verb: "create", Group: certificates, Resource: "certificatesigningrequests"},
		access.Permission{Verb: "update", Group: certificates, Resource: "certificatesigningrequests", Subresource: "approval"},
		access.Permission{Verb: "approve", Group: certificates, Resource: "signers", Name: certificatesv1.KubeAPIServerClientSignerName},
	)
	for _, n := range []string{e.namespace, e.LiqoNamespace} {
		all = append(all, access.Permission{Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: n})
	}
	if e.namespaceFound() == nil {
		all = append(all, access.Permission{Verb: "create", Resource: "namespaces"})
	}
	return all
}

func (e *end) newPeeringUser(rsa bool) (*peeringUser, error) {
	generate := credentials.GenerateKey
	if rsa {
		generate = credentials.GenerateRSAKey
	}
	u := &peeringUser{end: e, subject: credentials.NewPeeringUser(e.peer.id)}
	var err error
	if u.key, err = generate(); err != nil {
		return nil, err
	}
	text, err := u.key.Request(u.subject)
	if err != nil {
		return nil, err
	}
	u.request = &certificatesv1.CertificateSigningRequest{
		ObjectMeta: u.metadata(""),
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: text, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}
	return u, nil
}

// metadata is that of all objects of the user.
func (u *peeringUser) metadata(namespace string) metav1.ObjectMeta {
	m := u.end.metadata(u.subject.CommonName)
	m.Namespace = namespace
	return m.of("", map[string]string{authv1beta1.LabelPeeringUser: objectname.Shorten(u.subject.CommonName, maxLabel)})
}

// signed lets the cluster sign the certificate. The user of this command approves the request.
func (u *peeringUser) signed() *step {
	what := "CertificateSigningRequest " + u.request.Name
	s := &step{in: u.Cluster, waiting: "Waiting for the certificate", done: "Certificate signed"}
	s.try = func(ctx context.Context) (missing string, err error) {
		r := new(certificatesv1.CertificateSigningRequest)
		switch err := u.Client.Get(ctx, client.ObjectKeyFromObject(u.request), r); {
		case apierrors.IsNotFound(err):
			r = u.request.DeepCopy()
			if err := u.write.Create(ctx, r); err != nil {
				return "", u.Explain("create "+what, err)
			}
		case err != nil:
			return "", u.Explain("read "+what, err)
		case !bytes.Equal(r.Spec.Request, u.request.Spec.Request):
			return "", &complaint{what + " already exists and was created by somebody else"}
		}
		if len(r.Status.Certificate) > 0 {
			u.certificate = r.Status.Certificate
			return "", nil
		}
		for _, c := range r.Status.Conditions {
			if c.Type != certificatesv1.CertificateApproved {
				return "", &complaint{fmt.Sprintf("%s: %s: %s", what, c.Reason, c.Message)}
			}
		}
		if len(r.Status.Conditions) > 0 {
			return fmt.Sprintf("%s has not been signed: the cluster may have no signer for %s", what, r.Spec.SignerName), nil
		}
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "PeeringUser",
			Message: "by liqoctl, for the operator of cluster " + u.peer.id, LastUpdateTime: metav1.Now(),
		})
		return what + " has just been approved", u.Explain("approve "+what, u.Client.SubResource("approval").Update(ctx, r))
	}
	return s
}

// forgetRequest deletes the request, whether it has been signed or never will be.
func (u *peeringUser) forgetRequest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return u.Explain("delete CertificateSigningRequest "+u.request.Name, client.IgnoreNotFound(u.write.Delete(ctx, u.request)))
}

// bound gives the user its rights. Of Secrets it gets those of a handshake: the public key of a gateway is in its status.
func (u *peeringUser) bound() *step {
	bind := func(namespace, kind, roleName string) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: u.metadata(namespace),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: roleName},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u.subject.CommonName}},
		}
	}
	wanted := []client.Object{
		bind(u.namespace, "ClusterRole", authv1beta1.PeeringUserTenantRole),
		bind(u.LiqoNamespace, "Role", authv1beta1.PeeringUserLiqoRole),
	}
	s := &step{in: u.Cluster, waiting: "Granting the rights", done: "Peering user " + u.subject.CommonName + " created"}
	s.try = func(ctx context.Context) (missing string, err error) {
		for _, o := range wanted {
			if err := u.write.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
				return "", u.Explain(fmt.Sprintf("create %T %s", o, client.ObjectKeyFromObject(o)), err)
			}
		}
		return "", nil
	}
	return s
}
