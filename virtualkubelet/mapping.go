package virtualkubelet

import offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"

// standing says how a namespace here stands at the provider.
type standing int

const (
	// waiting means that nothing may be made and nothing removed: the provider has not answered, or its answer is not
	// known now.
	waiting standing = iota
	// mapped means that there is a namespace at the provider.
	mapped
	// ending means that the namespace at the provider is being removed: nothing may be made, and what is gone stays gone.
	ending
	// unmapped means that nobody wants one, and there is none.
	unmapped
)

// stand says how a namespace stands by a NamespaceMap, which may be nil, and what it is called at the provider. A map
// that is missing or without an answer is no reason to take anything back.
func stand(m *offloadingv1beta1.NamespaceMap, namespace string) (there string, s standing) {
	if m == nil {
		return "", waiting
	}
	current, answered := m.Status.CurrentMapping[namespace]
	_, desired := m.Spec.DesiredMapping[namespace]
	switch {
	case answered && desired && current.Phase == offloadingv1beta1.MappingAccepted && current.RemoteNamespace != "":
		return current.RemoteNamespace, mapped
	case answered && current.Phase == offloadingv1beta1.MappingTerminating && current.RemoteNamespace != "":
		return current.RemoteNamespace, ending
	case answered || desired:
		return "", waiting
	}
	return "", unmapped
}

// namespaceMap is that of the provider; nil: there is none, or it is being deleted.
func (k *Kubelet) namespaceMap() *offloadingv1beta1.NamespaceMap { return k.home.maps.Only() }
