package virtualkubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"going":                {&offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("Terminating")}}, ending},
		"going, and wanted":    {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}, Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("Terminating")}}, ending},
		"going, no name":       {&offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current{"shop": {Phase: "Terminating"}}}}, waiting},
		"wanted no more":       {&offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: status("Accepted")}}, waiting},
		"of another namespace": {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"other": "x"}}}, unmapped},
		"empty":                {&offloadingv1beta1.NamespaceMap{}, unmapped},
		"accepted, no name":    {&offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}, Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current{"shop": {Phase: "Accepted"}}}}, waiting},
	} {
		there, got := stand(c.m, "shop")
		if got != c.want || (there != "") != (got == mapped || got == ending) {
			t.Errorf("%s: %v, %q", name, got, there)
		}
	}
}

func TestLastOf(t *testing.T) {
	pod := func(phase corev1.PodPhase, deleted bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Status: corev1.PodStatus{Phase: phase}}
		if deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return p
	}
	origin := func(uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{"offloading.liqo.io/origin-uid": uid}}
	}
	there := func(uid string) *corev1.Pod { return &corev1.Pod{ObjectMeta: origin(uid)} }
	shadow := func(phase corev1.PodPhase) *offloadingv1beta1.ShadowPod {
		return &offloadingv1beta1.ShadowPod{ObjectMeta: origin("1"), Status: offloadingv1beta1.ShadowPodStatus{Phase: phase}}
	}
	for name, tt := range map[string]struct {
		here   *corev1.Pod
		shadow *offloadingv1beta1.ShadowPod
		copied *corev1.Pod
		want   last
	}{
		"it still runs there":                         {pod(corev1.PodRunning, false), shadow(corev1.PodRunning), there("1"), follows},
		"it ends there":                               {pod(corev1.PodRunning, true), shadow(corev1.PodRunning), there("1"), follows},
		"it is gone there, its ShadowPod is not":      {pod(corev1.PodRunning, false), shadow(corev1.PodRunning), nil, missing},
		"both are gone there":                         {pod(corev1.PodRunning, false), nil, nil, missing},
		"a former pod ends there":                     {pod(corev1.PodRunning, false), nil, there("2"), missing},
		"it was never made":                           {pod(corev1.PodPending, false), nil, nil, missing},
		"it had ended there":                          {pod(corev1.PodRunning, false), shadow(corev1.PodSucceeded), nil, hasEnded},
		"it has ended here":                           {pod(corev1.PodFailed, false), shadow(corev1.PodFailed), there("1"), leave},
		"it is being deleted, and gone there":         {pod(corev1.PodRunning, true), shadow(corev1.PodRunning), nil, release},
		"it is being deleted, and a former pod there": {pod(corev1.PodRunning, true), nil, there("2"), release},
	} {
		if got := lastOf(tt.here, tt.shadow, tt.copied); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
