package virtualkubelet

import (
	"testing"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// A namespace is taken back only when nobody wants it and the provider has nothing for it.
func TestStand(t *testing.T) {
	type current = map[string]offloadingv1beta1.RemoteNamespaceStatus
	status := func(phase offloadingv1beta1.MappingPhase) current {
		return current{"shop": {RemoteNamespace: "shop-rome", Phase: phase}}
	}
	desired := map[string]string{"shop": "shop-rome"}
	for name, c := range map[string]struct {
		m    *offloadingv1beta1.NamespaceMap
		want standing
	}{
		"no map":               {nil, waiting},
		"accepted":             {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}, Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("Accepted")}}, mapped},
		"no answer":            {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}}, waiting},
		"cannot be made":       {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}, Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("CreationLoopBackOff")}}, waiting},
		"going":                {&offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("Terminating")}}, waiting},
		"wanted no more":       {&offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("Accepted")}}, waiting},
		"of another namespace": {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"other": "x"}}}, unmapped},
		"empty":                {&offloadingv1beta1.NamespaceMap{}, unmapped},
		"accepted, no name":    {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}, Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current{"shop": {Phase: "Accepted"}}}}, waiting},
	} {
		there, got := stand(c.m, "shop")
		if got != c.want || (there != "") != (got == mapped) {
			t.Errorf("%s: %v, %q", name, got, there)
		}
	}
}
