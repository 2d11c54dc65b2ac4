package virtualnode

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

func TestChooseTemplate(t *testing.T) {
	node := func(name string, age int, ref *corev1.ObjectReference) offloadingv1beta1.VirtualNode {
		return offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(-age), 0))},
			Spec:       offloadingv1beta1.VirtualNodeSpec{VkOptionsTemplateRef: ref},
		}
	}
	mine, theirs := &corev1.ObjectReference{Namespace: "shop", Name: "mine"}, &corev1.ObjectReference{Name: "theirs"}
	for _, tt := range []struct {
		name     string
		virtual  []offloadingv1beta1.VirtualNode
		want     string
		disagree bool
	}{
		{"none", nil, "liqo/virtual-kubelet-default", false},
		{"none named", []offloadingv1beta1.VirtualNode{node("a", 1, nil), node("b", 2, new(corev1.ObjectReference))}, "liqo/virtual-kubelet-default", false},
		{"one named", []offloadingv1beta1.VirtualNode{node("a", 3, nil), node("b", 2, mine)}, "shop/mine", false},
		{"in the namespace of the installation", []offloadingv1beta1.VirtualNode{node("a", 1, theirs)}, "liqo/theirs", false},
		{"the same twice", []offloadingv1beta1.VirtualNode{node("a", 1, mine), node("b", 2, mine)}, "shop/mine", false},
		{"two: the older one's", []offloadingv1beta1.VirtualNode{node("a", 1, theirs), node("b", 2, mine)}, "shop/mine", true},
		{"two of an age: the first by name", []offloadingv1beta1.VirtualNode{node("b", 1, mine), node("a", 1, theirs)}, "liqo/theirs", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Facts{LiqoNamespace: "liqo", Peer: "milan", Tenant: true, VirtualNodes: 1}
			f.chooseTemplate(tt.virtual)
			if got := f.TemplateName.String(); got != tt.want || f.Disagree != tt.disagree {
				t.Errorf("%s, %v", got, f.Disagree)
			}
			_, _, c := Build(f)
			if of := "VkOptionsTemplate " + f.TemplateName.Name + " in namespace " + f.TemplateName.Namespace; c.Reason != ReasonTemplateMissing || !strings.Contains(c.Message, of) {
				t.Errorf("%+v", c)
			}
			f.Template = &offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "image"}
			if _, _, c = Build(f); strings.Contains(c.Message, "the oldest VirtualNode") != tt.disagree {
				t.Errorf("%+v", c)
			}
		})
	}
}
