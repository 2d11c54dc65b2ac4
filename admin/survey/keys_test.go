package survey

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestKeysOfKeepsNoPrivateKey(t *testing.T) {
	private := bytes.Repeat([]byte{1}, 32)
	s := corev1.Secret{ObjectMeta: with(object("a", "gw-milan", "milan", 60), networkingv1beta1.LabelManaged, networkingv1beta1.LabelTrue),
		Data: map[string][]byte{"privateKey": private, "publicKey": bytes.Repeat([]byte{2}, 32)}}
	k := keysOf([]corev1.Secret{s})[types.NamespacedName{Namespace: "a", Name: "gw-milan"}]
	if k.Public != "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=" || !k.Generated || !k.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v", k)
	}
	if !bytes.Equal(private, make([]byte, 32)) {
		t.Error("the private key is still in memory")
	}
}

func TestWrittenAt(t *testing.T) {
	entry := func(minutes int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: new(metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for _, tt := range []struct {
		name   string
		fields []metav1.ManagedFieldsEntry
		want   int // minutes ago
	}{
		{"nothing is known", nil, 60},
		{"replaced since", []metav1.ManagedFieldsEntry{entry(60, `{"f:data":{".":{},"f:privateKey":{}}}`), entry(10, `{"f:data":{"f:privateKey":{},"f:publicKey":{}}}`)}, 10},
		{"other fields were written since", []metav1.ManagedFieldsEntry{entry(5, `{"f:metadata":{"f:labels":{}}}`), entry(4, `{"f:data":{"f:other":{}}}`)}, 60},
		{"fields that cannot be read", []metav1.ManagedFieldsEntry{entry(5, `{"f:data":[]}`), entry(5, `no`), {}}, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := object("a", "b", "", 60)
			m.ManagedFields = tt.fields
			if got := int(now.Sub(keySince(&m)).Minutes()); got != tt.want {
				t.Errorf("%d minutes ago, want %d", got, tt.want)
			}
		})
	}
}
