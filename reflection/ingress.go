package reflection

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// annotationIngressClass names a class as it was done before spec.ingressClassName. An API server refuses both.
const annotationIngressClass = "kubernetes.io/ingress.class"

// Ingress returns what stands for an Ingress at the provider. Its class is the one named here if the provider offers it,
// else the provider's default, else none: the provider decides then.
func Ingress(i *networkingv1.Ingress, namespace string, offered []offloadingv1beta1.IngressClass, p Peering, f Filter) *networkingv1.Ingress {
	out := &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: p.meta(i.ObjectMeta, namespace, f),
	}
	in := i.DeepCopy().Spec
	out.Spec = networkingv1.IngressSpec{DefaultBackend: in.DefaultBackend, TLS: in.TLS, Rules: in.Rules}
	delete(out.Annotations, annotationIngressClass)
	for _, c := range offered {
		named := in.IngressClassName != nil && c.IngressClassName == *in.IngressClassName
		if named || c.Default && out.Spec.IngressClassName == nil {
			out.Spec.IngressClassName = new(c.IngressClassName)
		}
		if named {
			break
		}
	}
	return out
}
