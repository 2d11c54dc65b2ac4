package reflection

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

const (
	// RootCA is the name of the ConfigMap with the certificate authority of an API server, which is in every namespace.
	RootCA = "kube-root-ca.crt"

	// namespaceKey is the key of the consumer's namespace in the Secret with tokens.
	namespaceKey = "namespace"
	apiHost      = "kubernetes.default"
)

// APIAccess says how offloaded pods reach the API server of their own cluster, which they do with their own service
// account. The zero value means that they do not: then tokens are left out.
type APIAccess struct {
	// Address is that of the consumer's API server as the consumer's own network knows it from outside: the provider
	// translates it, since it stands in hostAliases for kubernetes.default.
	Address netip.Addr
	Port    string
}

const (
	// minTokenLife is the shortest life that an API server gives a token, in seconds. maxTokenLife bounds what a pod may ask
	// for: a token in another cluster is renewed at least once a day.
	minTokenLife, maxTokenLife = 600, 24 * 3600
	// refreshAfter is the part of a token's life after which there is another one, and jitter what it varies by among pods,
	// so that not all that were made together ask together.
	refreshAfter, jitter = 0.8, 0.1
)

// Token is a service account token that a pod asks for in one of its volumes.
type Token struct {
	// Key is the key in the Secret.
	Key string
	// Audience is empty for that of the API server.
	Audience string
	// ExpirationSeconds is how long it is asked to live.
	ExpirationSeconds int64
}

// TokenSecretName is the name of the Secret at the provider with the tokens of a pod.
func TokenSecretName(pod string) string { return pod + "-token" }

// RootCAName is the name at a provider of the ConfigMap [RootCA] of a consumer.
func RootCAName(consumer string) string { return RootCA + "." + consumer[:min(5, len(consumer))] }

// ServiceAccountName is that of a pod, whose default is not written.
func ServiceAccountName(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName == "" {
		return "default"
	}
	return pod.Spec.ServiceAccountName
}

// Tokens are the tokens that a Secret at the provider must have for a pod. There are none where the pod does not reach
// the consumer's API server.
func (a APIAccess) Tokens(pod *corev1.Pod) (out []Token) {
	if a.mode(pod) != accessHome {
		return nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if t := source.ServiceAccountToken; t != nil {
				token := Token{Key: tokenKey(v.Name, t.Path), Audience: t.Audience, ExpirationSeconds: 3600}
				if t.ExpirationSeconds != nil {
					token.ExpirationSeconds = min(max(*t.ExpirationSeconds, minTokenLife), maxTokenLife)
				}
				out = append(out, token)
			}
		}
	}
	return out
}

// TokenSecret holds the tokens of a pod at the provider, by key. The first of them expires at expires.
func TokenSecret(pod *corev1.Pod, tokens map[string]string, expires time.Time, namespace string, p Peering) *corev1.Secret {
	labels := p.Marks()
	labels[offloadingv1beta1.LabelServiceAccountName] = labelValue(ServiceAccountName(pod))
	labels[offloadingv1beta1.LabelNodeName] = pod.Spec.NodeName
	data := map[string][]byte{namespaceKey: []byte(pod.Namespace)}
	for key, token := range tokens {
		data[key] = []byte(token)
	}
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: TokenSecretName(pod.Name), Labels: labels, Annotations: map[string]string{
			offloadingv1beta1.AnnotationServiceAccountPodName:    pod.Name,
			offloadingv1beta1.AnnotationServiceAccountPodUID:     string(pod.UID),
			offloadingv1beta1.AnnotationServiceAccountExpiration: expires.UTC().Format(time.RFC3339),
		}},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
}

// labelValue is a name as a label has it: that of a service account may be longer, and is in the tokens anyway.
func labelValue(name string) string {
	return strings.TrimRight(name[:min(len(name), validation.LabelValueMaxLength)], "-.")
}

// RefreshAt says when the tokens of a pod are to be asked for again, given the Secret at the provider, of which the metadata
// is read; nil: there is none. A zero time means at once.
func RefreshAt(pod, secret metav1.Object, tokens []Token) time.Time {
	if secret == nil || secret.GetAnnotations()[offloadingv1beta1.AnnotationServiceAccountPodUID] != string(pod.GetUID()) {
		return time.Time{}
	}
	expires, err := time.Parse(time.RFC3339, secret.GetAnnotations()[offloadingv1beta1.AnnotationServiceAccountExpiration])
	if err != nil {
		return time.Time{}
	}
	life := int64(maxTokenLife)
	for _, t := range tokens {
		life = min(life, t.ExpirationSeconds)
	}
	h := fnv.New32a()
	h.Write([]byte(pod.GetUID()))
	early := 1 - refreshAfter + jitter*float64(h.Sum32())/math.MaxUint32
	return expires.Add(-time.Duration(early * float64(life) * float64(time.Second)))
}

func tokenKey(volume, path string) string {
	sum := sha256.Sum256([]byte(path))
	return volume + "-" + hex.EncodeToString(sum[:3])
}

// The ways in which a pod uses an API server.
const (
	accessNone   = "disabled" // no token
	accessRemote = "remote"   // that of the provider, with an account that the provider has made
	accessHome   = "home"     // that of the consumer
)

func (a APIAccess) mode(pod *corev1.Pod) string {
	switch mode := pod.Annotations[offloadingv1beta1.AnnotationAPIServerSupport]; {
	case mode == accessNone || mode == accessRemote:
		return mode
	case !a.Address.IsValid():
		return accessNone
	}
	return accessHome
}

// apply makes a spec use the API server that its pod is to use.
func (a APIAccess) apply(pod *corev1.Pod, s *corev1.PodSpec, p Peering) {
	mode := a.mode(pod)
	if mode == accessRemote {
		s.ServiceAccountName = pod.Annotations[offloadingv1beta1.AnnotationRemoteServiceAccountName]
		if s.ServiceAccountName == "" {
			s.ServiceAccountName = pod.Spec.ServiceAccountName
		}
		return
	}
	dropped := map[string]bool{}
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap != nil && v.ConfigMap.Name == RootCA {
			v.ConfigMap.Name = RootCAName(p.Consumer)
		}
		if v.Projected == nil {
			return false
		}
		if mode == accessNone && isAccountVolume(v.Projected) {
			dropped[v.Name] = true
			return true
		}
		v.Projected.Sources = projections(v.Name, v.Projected.Sources, pod, mode, p)
		return false
	})
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			c := &list[i]
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return dropped[m.Name] })
			localReferences(c, pod, p)
			if mode == accessHome {
				c.Env = append(a.env(c.Env), c.Env...)
			}
		}
	}
	if mode == accessHome {
		s.HostAliases = append(s.HostAliases, corev1.HostAlias{IP: a.Address.String(), Hostnames: []string{apiHost, apiHost + ".svc"}})
	}
}

// TranslateAPIServer has the addresses by which a pod at a provider knows the consumer's API server be those by which it is
// reached there; a translates those of the consumer. The error is about one that it does not know.
func TranslateAPIServer(s *corev1.PodSpec, a Addresses) error {
	for i := range s.HostAliases {
		h := &s.HostAliases[i]
		if !slices.Contains(h.Hostnames, apiHost) && !slices.Contains(h.Hostnames, apiHost+".svc") {
			continue
		}
		there, err := netip.ParseAddr(h.IP)
		if err != nil {
			return fmt.Errorf("spec.pod.hostAliases[%d].ip is not an address", i)
		}
		here, ok := a.Here(there)
		if !ok {
			return fmt.Errorf("spec.pod.hostAliases[%d].ip: %s is in no CIDR of the consumer that this cluster knows", i, there)
		}
		h.IP = here.String()
	}
	return nil
}

// isAccountVolume tells whether a volume is of the kind that every pod gets: a token, the certificate authority, the
// namespace, and nothing that the user has written.
func isAccountVolume(v *corev1.ProjectedVolumeSource) bool {
	tokens := 0
	for _, s := range v.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			tokens++
		case s.ConfigMap != nil && s.ConfigMap.Name == RootCA:
		case s.DownwardAPI != nil && namespaceOnly(s.DownwardAPI):
		default:
			return false
		}
	}
	return tokens > 0
}

func namespaceOnly(d *corev1.DownwardAPIProjection) bool {
	return len(d.Items) == 1 && d.Items[0].FieldRef != nil && d.Items[0].FieldRef.FieldPath == "metadata.namespace"
}

// projections replaces the sources of a projected volume that mean something else at the provider.
func projections(volume string, sources []corev1.VolumeProjection, pod *corev1.Pod, mode string, p Peering) (out []corev1.VolumeProjection) {
	fromSecret := func(key, path string) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: TokenSecretName(pod.Name)},
			Items:                []corev1.KeyToPath{{Key: key, Path: path}},
		}}
	}
	account := slices.ContainsFunc(sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	for _, s := range sources {
		switch {
		case s.ServiceAccountToken != nil:
			if mode == accessHome {
				out = append(out, fromSecret(tokenKey(volume, s.ServiceAccountToken.Path), s.ServiceAccountToken.Path))
			}
		case s.DownwardAPI != nil && account && mode == accessHome && namespaceOnly(s.DownwardAPI):
			// A client reads it to know where it is in its own cluster. There it may have another name.
			out = append(out, fromSecret(namespaceKey, s.DownwardAPI.Items[0].Path))
		default:
			if s.ConfigMap != nil && s.ConfigMap.Name == RootCA {
				s.ConfigMap.Name = RootCAName(p.Consumer)
			}
			out = append(out, s)
		}
	}
	return out
}

// localReferences replaces what variables refer to and the pod at the provider lacks: the name of its service account,
// and the certificate authority of the consumer.
func localReferences(c *corev1.Container, pod *corev1.Pod, p Peering) {
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.serviceAccountName" {
			e.Value, e.ValueFrom = ServiceAccountName(pod), nil
		}
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name == RootCA {
			e.ValueFrom.ConfigMapKeyRef.Name = RootCAName(p.Consumer)
		}
	}
	for i := range c.EnvFrom {
		if m := c.EnvFrom[i].ConfigMapRef; m != nil && m.Name == RootCA {
			m.Name = RootCAName(p.Consumer)
		}
	}
}

// env is what a kubelet tells containers about the API server, without what the container sets itself.
func (a APIAccess) env(set []corev1.EnvVar) (out []corev1.EnvVar) {
	url := "tcp://" + apiHost + ":" + a.Port
	for _, e := range []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: apiHost},
		{Name: "KUBERNETES_SERVICE_PORT", Value: a.Port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: a.Port},
		{Name: "KUBERNETES_PORT", Value: url},
		{Name: "KUBERNETES_PORT_" + a.Port + "_TCP", Value: url},
		{Name: "KUBERNETES_PORT_" + a.Port + "_TCP_PROTO", Value: "tcp"},
		{Name: "KUBERNETES_PORT_" + a.Port + "_TCP_ADDR", Value: apiHost},
		{Name: "KUBERNETES_PORT_" + a.Port + "_TCP_PORT", Value: a.Port},
	} {
		if !slices.ContainsFunc(set, func(o corev1.EnvVar) bool { return o.Name == e.Name }) {
			out = append(out, e)
		}
	}
	return out
}

// listed splits a comma-separated list.
func listed(s string) (out []string) {
	for _, e := range strings.Split(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}
