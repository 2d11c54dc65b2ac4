package resourceslice

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestNotReplicated: who writes a slice that nobody copies is told once which piece is missing.
func TestNotReplicated(t *testing.T) {
	labels := func(without ...string) map[string]string {
		l := map[string]string{"liqo.io/replication": "true", "liqo.io/remoteID": "milan", "liqo.io/remote-cluster-id": "milan"}
		for _, key := range without {
			delete(l, key)
		}
		return l
	}
	for _, c := range []struct {
		name                string
		labels              map[string]string
		namespace, identity string // of the Secret with the identity
		reason, says        string // empty: nothing is told
	}{
		{"all there", labels(), "tenant", "milan", "", ""},
		{"no label of replication", labels("liqo.io/replication"), "tenant", "milan", authv1beta1.ReasonNotReplicated, "label liqo.io/replication to true"},
		{"no label at all", nil, "tenant", "milan", authv1beta1.ReasonNotReplicated, "label liqo.io/replication to true"},
		{"no label of the provider", labels("liqo.io/remoteID"), "tenant", "milan", authv1beta1.ReasonConsumerInvalid, "liqo.io/remoteID"},
		{"the identity is for another provider", labels(), "tenant", "naples", authv1beta1.ReasonNotReplicated, "cluster milan: this namespace has no Secret with the labels liqo.io/identity-type=ControlPlane and liqo.io/remote-cluster-id=milan"},
		{"the identity is in another namespace", labels(), "other", "milan", authv1beta1.ReasonNotReplicated, "this namespace has no Secret"},
		{"another cluster's copy", map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "milan"}, "tenant", "naples", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "slice", Labels: c.labels}}
			fakes := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(s,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": "rome"}},
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "identity", Labels: map[string]string{
					"liqo.io/identity-type": "ControlPlane", "liqo.io/remote-cluster-id": c.identity,
				}}},
			).Build()
			recorder := events.NewFakeRecorder(10)
			r := &consumer{
				Client: fakes, Reader: fakes, Recorder: recorder,
				Cluster: identify.Cluster{Client: fakes, Reader: fakes, LiqoNamespace: "liqo"},
			}
			for range 4 { // also after it was completed
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
					t.Fatal(err)
				}
			}
			close(recorder.Events)
			var told []string
			for e := range recorder.Events {
				told = append(told, e)
			}
			switch {
			case c.reason == "":
				if len(told) > 0 {
					t.Errorf("the events are %q", told)
				}
			case len(told) != 1 || !strings.Contains(told[0], c.reason) || !strings.Contains(told[0], c.says):
				t.Errorf("the events are %q; want one of %s: %q", told, c.reason, c.says)
			}
		})
	}
}

// TestNotReplicatedAtOnce is for the race detector.
func TestNotReplicatedAtOnce(t *testing.T) {
	const slices = 8
	build := fake.NewClientBuilder().WithScheme(kinds.Scheme())
	for i := range slices {
		build.WithObjects(&authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: fmt.Sprint("slice-", i)}})
	}
	fakes, recorder := build.Build(), events.NewFakeRecorder(2*slices)
	r := &consumer{Client: fakes, Reader: fakes, Recorder: recorder}
	var wg sync.WaitGroup
	for i := range 2 * slices {
		wg.Go(func() {
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "tenant", Name: fmt.Sprint("slice-", i%slices)}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if told := len(recorder.Events); told != slices {
		t.Errorf("%d events about %d slices", told, slices)
	}
}
