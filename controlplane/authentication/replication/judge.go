package replication

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// isIdentity tells whether a Secret is the identity of a control plane.
func isIdentity(s *corev1.Secret) bool {
	return s.Labels[authv1beta1.LabelIdentityType] == string(authv1beta1.ControlPlaneIdentity)
}

// peerOf is between whom a Secret lets copy, if it is right.
func peerOf(s *corev1.Secret, own string) peer {
	return peer{
		consumer: own, provider: s.Labels[networkingv1beta1.LabelRemoteClusterID],
		here: s.Namespace, there: s.Annotations[authv1beta1.AnnotationRemoteTenantNamespace],
	}
}

// judge returns between whom a Secret lets copy, and how to reach the provider; or why not.
func judge(s *corev1.Secret, all []corev1.Secret, own string, now time.Time) (p peer, cfg *rest.Config, reason, why string) {
	refuse := func(reason, format string, args ...any) (peer, *rest.Config, string, string) {
		return peer{}, nil, reason, fmt.Sprintf(format, args...)
	}
	p = peerOf(s, own)
	switch {
	case len(validation.IsDNS1123Label(p.provider)) > 0 || p.provider == own:
		return refuse(authv1beta1.ReasonClusterIDInvalid, "the label %s is %q; it must be the ID of the provider", networkingv1beta1.LabelRemoteClusterID, text.Quoted(p.provider))
	case p.there == "":
		return refuse(authv1beta1.ReasonAnnotationMissing, "the annotation %s is missing: set it to the name of the tenant namespace at cluster %s", authv1beta1.AnnotationRemoteTenantNamespace, p.provider)
	case len(validation.IsDNS1123Label(p.there)) > 0:
		return refuse(authv1beta1.ReasonAnnotationMissing, "the annotation %s is %q, which is not the name of a namespace", authv1beta1.AnnotationRemoteTenantNamespace, text.Quoted(p.there))
	}
	for i := range all {
		o := &all[i]
		if o.UID != s.UID && isIdentity(o) && o.DeletionTimestamp.IsZero() && o.Labels[networkingv1beta1.LabelRemoteClusterID] == p.provider && older(o, s) {
			return refuse(authv1beta1.ReasonDuplicateIdentity, "Secret %s/%s, which is older, is for cluster %s too: delete one of them", o.Namespace, o.Name, p.provider)
		}
	}
	cfg, err := credentials.ReadKubeconfig(s.Data[authv1beta1.KubeconfigKey])
	if err != nil {
		return refuse(authv1beta1.ReasonKubeconfigInvalid, "data.%s: %v", authv1beta1.KubeconfigKey, err)
	}
	if len(cfg.CertData) > 0 {
		c, err := credentials.ParseCertificate(cfg.CertData)
		switch {
		case err != nil:
			return refuse(authv1beta1.ReasonKubeconfigInvalid, "the client certificate of the kubeconfig: %v", err)
		case !now.Before(c.NotAfter):
			return refuse(authv1beta1.ReasonCertificateExpired, "the client certificate of the kubeconfig has expired at %s: put a new one in its place", c.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return p, cfg, "", ""
}

func older(a, b *corev1.Secret) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}
