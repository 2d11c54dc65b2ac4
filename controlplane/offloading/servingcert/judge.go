package servingcert

import (
	"bytes"
	"encoding/asn1"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// Reasons of the events of a request that is not approved.
const (
	// ReasonRequesterForbidden means that the request was not made with the token of a pod of a virtual kubelet.
	ReasonRequesterForbidden = "RequesterForbidden"
	// ReasonUsagesForbidden means that it asks for other usages than a server's.
	ReasonUsagesForbidden = "UsagesForbidden"
	// ReasonRequestInvalid means that it is no certificate signing request, or not signed by its key.
	ReasonRequestInvalid = "RequestInvalid"
	// ReasonSubjectForbidden means that the subject is not that of a node.
	ReasonSubjectForbidden = "SubjectForbidden"
	// ReasonNamesForbidden means that it asks for other alternative names than one address.
	ReasonNamesForbidden = "NamesForbidden"
	// ReasonNamespaceNotTenant means that the pod is in no tenant namespace.
	ReasonNamespaceNotTenant = "NamespaceNotTenant"
	// ReasonVirtualNodeMissing means that the tenant namespace has no VirtualNode of the node's name.
	ReasonVirtualNodeMissing = "VirtualNodeMissing"
	// ReasonNodeTaken means that the Node of this name is not the one of the VirtualNode.
	ReasonNodeTaken = "NodeNameTaken"
	// ReasonPodForbidden means that the pod which asks is not one of the virtual kubelet.
	ReasonPodForbidden = "PodForbidden"
	// ReasonAddressForbidden means that the address is not that of the pod which asks.
	ReasonAddressForbidden = "AddressForbidden"
)

// Refusal is why a request is not approved.
type Refusal struct {
	// Reason is one of the constants of this package.
	Reason string
	// Message says what is wrong.
	Message string
	// Wait means that it may become right: what it depends on is not there yet.
	Wait bool
}

// Request is what a request asks for, and who asks.
type Request struct {
	// Namespace, Pod and UID are those of the pod whose token was used.
	Namespace, Pod string
	UID            types.UID
	// Node is the node that the certificate is for, and Address its address.
	Node    string
	Address netip.Addr
}

const (
	userPrefix  = "system:serviceaccount:"
	nodePrefix  = "system:node:"
	nodesGroup  = "system:nodes"
	quotedLimit = 200
	// podName and podUID are what an API server tells of a token that is bound to a pod (k8s.io/apiserver,
	// pkg/authentication/serviceaccount).
	podName = "authentication.kubernetes.io/pod-name"
	podUID  = "authentication.kubernetes.io/pod-uid"
)

// usages are those of the certificate of a kubelet's server whose key signs only.
var usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}

// Read reads a request. What it asks for is not judged yet, except that a virtual kubelet could ask for it.
func Read(s *certificatesv1.CertificateSigningRequestSpec) (Request, *Refusal) {
	var r Request
	user, ok := strings.CutPrefix(s.Username, userPrefix)
	namespace, account, _ := strings.Cut(user, ":")
	if !ok || namespace == "" || account != offloadingv1beta1.VirtualKubeletName {
		return r, refuse(ReasonRequesterForbidden, "%q is not the service account %s of a tenant namespace", cut(s.Username), offloadingv1beta1.VirtualKubeletName)
	}
	pod, uid := s.Extra[podName], s.Extra[podUID]
	if len(pod) != 1 || len(uid) != 1 || pod[0] == "" || uid[0] == "" {
		return r, refuse(ReasonRequesterForbidden, "the token of %q is bound to no pod", cut(s.Username))
	}
	r.Namespace, r.Pod, r.UID = namespace, pod[0], types.UID(uid[0])
	if asked := slices.Sorted(slices.Values(s.Usages)); !slices.Equal(asked, usages) {
		return r, refuse(ReasonUsagesForbidden, "the usages are %q, they must be %q", asked, usages)
	}
	csr, err := credentials.ParseRequest(s.Request)
	if err != nil {
		return r, refuse(ReasonRequestInvalid, "%s", cut(err.Error()))
	}
	node, ok := strings.CutPrefix(csr.Subject.CommonName, nodePrefix)
	// Other attributes, or a second common name, could mean something else to another reader.
	if !ok || node == "" || !slices.Equal(csr.Subject.Organization, []string{nodesGroup}) || len(csr.Subject.Names) != 2 {
		return r, refuse(ReasonSubjectForbidden, "the subject is %q, it must be CN=%sNAME,O=%s", cut(csr.Subject.String()), nodePrefix, nodesGroup)
	}
	r.Node = node
	if len(csr.IPAddresses) != 1 {
		return r, refuse(ReasonNamesForbidden, "it asks for %d addresses, it must be one", len(csr.IPAddresses))
	}
	r.Address, _ = netip.AddrFromSlice(csr.IPAddresses[0])
	// Byte for byte, since there are kinds of names that Go does not show.
	if len(csr.Extensions) != 1 || !csr.Extensions[0].Id.Equal(alternativeNames) || !bytes.Equal(csr.Extensions[0].Value, onlyAddress(r.Address)) {
		return r, refuse(ReasonNamesForbidden, "it asks for names or extensions beside the one address %s", r.Address)
	}
	return r, nil
}

// alternativeNames is the extension subjectAltName (RFC 5280, section 4.2.1.6).
var alternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// onlyAddress is that extension with one iPAddress and nothing else.
func onlyAddress(a netip.Addr) []byte {
	const iPAddress = 7
	value, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: iPAddress, Bytes: a.AsSlice()}})
	if err != nil {
		return nil // which no extension is equal to
	}
	return value
}

// Facts are what the cluster knows of what a request says.
type Facts struct {
	// Peer is the ID of the cluster whose tenant namespace the pod's namespace is; empty: it is none.
	Peer string
	// VirtualNode is the one of the node's name in that namespace, Node the Node of this name, Pod the pod that asks; nil:
	// there is none.
	VirtualNode *offloadingv1beta1.VirtualNode
	Node        *corev1.Node
	Pod         *corev1.Pod
}

// Judge says why a request is not approved; nil: it is.
func Judge(r Request, f Facts) *Refusal {
	if f.Peer == "" {
		return refuse(ReasonNamespaceNotTenant, "namespace %s is no tenant namespace: it lacks the labels %s=true and %s", r.Namespace, networkingv1beta1.LabelTenantNamespace, networkingv1beta1.LabelRemoteClusterID)
	}
	if v := f.VirtualNode; v == nil || !v.DeletionTimestamp.IsZero() || string(v.Spec.ClusterID) != f.Peer {
		return wait(ReasonVirtualNodeMissing, "namespace %s has no VirtualNode %s of cluster %s", r.Namespace, cut(r.Node), f.Peer)
	}
	if n := f.Node; n != nil && (n.Labels[networkingv1beta1.LabelNodeType] != networkingv1beta1.NodeTypeVirtual || n.Labels[networkingv1beta1.LabelRemoteClusterID] != f.Peer) {
		return refuse(ReasonNodeTaken, "Node %s is no virtual node of cluster %s", cut(r.Node), f.Peer)
	}
	p := f.Pod
	switch {
	case p == nil || p.UID != r.UID:
		return refuse(ReasonPodForbidden, "the pod %s/%s which has asked is gone", r.Namespace, r.Pod)
	case p.Spec.ServiceAccountName != offloadingv1beta1.VirtualKubeletName, p.Labels[offloadingv1beta1.LabelComponent] != offloadingv1beta1.ComponentVirtualKubelet,
		p.Labels[networkingv1beta1.LabelRemoteClusterID] != f.Peer:
		return refuse(ReasonPodForbidden, "pod %s/%s is not one of the virtual kubelet for cluster %s", r.Namespace, r.Pod, f.Peer)
	case p.Spec.HostNetwork:
		return refuse(ReasonPodForbidden, "pod %s/%s has the address of a node, at which others answer", r.Namespace, r.Pod)
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return refuse(ReasonPodForbidden, "pod %s/%s has ended, and its address may be another's by now", r.Namespace, r.Pod)
	case len(p.Status.PodIPs) == 0:
		return wait(ReasonAddressForbidden, "pod %s/%s has no address yet", r.Namespace, r.Pod)
	case !slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: r.Address.String()}):
		return refuse(ReasonAddressForbidden, "%s is not the address of pod %s/%s, which is %s", r.Address, r.Namespace, r.Pod, p.Status.PodIPs[0].IP)
	}
	return nil
}

func refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func wait(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...), Wait: true}
}

// cut shortens what is quoted of another party's text.
func cut(s string) string { return text.Cut(s, quotedLimit) }
