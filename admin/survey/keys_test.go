package survey

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
		{"replaced since", []metav1.ManagedFieldsEntry{entry(60, `{"f:spec":{".":{},"f:publicKey":{}}}`), entry(10, `{"f:spec":{"f:publicKey":{}}}`)}, 10},
		{"other fields were written since", []metav1.ManagedFieldsEntry{entry(5, `{"f:metadata":{"f:labels":{}}}`), entry(4, `{"f:spec":{"f:other":{}}}`)}, 60},
		{"fields that cannot be read", []metav1.ManagedFieldsEntry{entry(5, `{"f:spec":[]}`), entry(5, `no`), {}}, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := object("a", "b", "", 60)
			m.ManagedFields = tt.fields
			if got := int(now.Sub(writtenAt(&m, "f:spec", "f:publicKey")).Minutes()); got != tt.want {
				t.Errorf("%d minutes ago, want %d", got, tt.want)
			}
		})
	}
}
