package reflection

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMap returns what stands for a ConfigMap at the provider. The certificate authority of the consumer has another
// name there, since the provider's own has that name.
func ConfigMap(m *corev1.ConfigMap, namespace string, p Peering, f Filter) *corev1.ConfigMap {
	out := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: p.meta(m.ObjectMeta, namespace, f), Data: m.Data, BinaryData: m.BinaryData, Immutable: m.Immutable,
	}
	if m.Name == RootCA {
		out.Name = RootCAName(p.Consumer)
	}
	return out
}

// Secret returns what stands for a Secret at the provider; nil for tokens of service accounts, of which those reach the
// provider that a pod there asks for.
func Secret(s *corev1.Secret, namespace string, p Peering, f Filter) *corev1.Secret {
	if s.Type == corev1.SecretTypeServiceAccountToken || s.Type == corev1.SecretTypeBootstrapToken {
		return nil
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: p.meta(s.ObjectMeta, namespace, f), Data: s.Data, Type: s.Type, Immutable: s.Immutable,
	}
}
