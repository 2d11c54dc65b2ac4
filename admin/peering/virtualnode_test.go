package peering

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

func TestNodeNameTaken(t *testing.T) {
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	virtual := func(id string) map[string]string {
		return map[string]string{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual, networkingv1beta1.LabelRemoteClusterID: id}
	}
	in := &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(
		node("machine", nil), node("milan", virtual("milan")), node("naples", virtual("naples")),
	).Build()}
	for name, taken := range map[string]bool{"machine": true, "naples": true, "milan": false, "nothing": false} {
		got, err := alone(in, "milan", &Options{})[0].nodeNameTaken(t.Context(), name)
		want := ""
		if taken {
			want = "there is a Node " + name + ", and it is not a virtual node for cluster milan"
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestVirtualNodeClues: what is over when a virtual node is waited for in vain, such as a name that was taken, is no advice.
func TestVirtualNodeClues(t *testing.T) {
	meta := func(name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name, UID: types.UID(uid)}
	}
	event := func(name, kind, uid, reason, message string) *corev1.Event {
		return &corev1.Event{ObjectMeta: meta(name, ""), Type: corev1.EventTypeWarning, Reason: reason, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "liqo-tenant-milan", Name: "milan", UID: types.UID(uid)}}
	}
	v, s := &offloadingv1beta1.VirtualNode{ObjectMeta: meta("milan", "1")}, &authv1beta1.ResourceSlice{ObjectMeta: meta("milan", "2")}
	events := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(
		event("a", "VirtualNode", "1", "NodeNameTaken", "there is a Node milan"),
		event("b", "ResourceSlice", "2", "VirtualNodeNameTaken", "name the slice otherwise"),
		event("c", "VirtualNode", "earlier", "KubeconfigInvalid", "the credentials of before"),
		event("d", "VirtualNode", "1", "ProviderHoldsTooMuch", "more Secrets than are held"),
		s,
	)
	e := alone(&access.Cluster{Options: access.Options{LiqoNamespace: "liqo", Flags: []string{"--context=rome"}}, Client: events.Build()}, "milan", &Options{})[0]
	e.namespace = "liqo-tenant-milan"
	clues := func(told string) string { return strings.Join(e.virtualNodeClues(t.Context(), told, "milan"), "\n") }
	if got := clues("nothing has made it yet"); !strings.Contains(got, "VirtualNodeNameTaken: name the slice otherwise") {
		t.Errorf("without a VirtualNode:\n%s", got)
	}
	if err := e.Client.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	got := clues("Node milan is not ready")
	if !strings.Contains(got, "more Secrets than are held") || strings.Contains(got, "Taken") || strings.Contains(got, "of before") {
		t.Errorf("what is told:\n%s", got)
	}
	v.Status.Conditions = []offloadingv1beta1.VirtualNodeCondition{{Type: offloadingv1beta1.VirtualNodeVirtualKubelet, Status: offloadingv1beta1.VirtualNodeNone, Reason: "NodeNameTaken"}}
	_, err := notRunning(v)
	if f := (&Failure{Doing: "waiting for node milan", Err: err, Done: 1, Steps: 2}).Error(); patience(err) != complaintFor || strings.Contains(f, "again") {
		t.Errorf("patience %v; it is told to continue:\n%s", patience(err), f)
	}
	const next = "Next: delete it with liqoctl delete virtualnode milan -n liqo-tenant-milan --context=rome, and create a virtual node with another name"
	if got := clues("VirtualNode milan, Node (NodeNameTaken): there is a Node milan"); got != next {
		t.Errorf("while the name is taken:\n%s", got)
	}
}
