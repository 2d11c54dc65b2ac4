package resourceslice

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const defaultIngress = "ingressclass.kubernetes.io/is-default-class"

// named is the metadata of a class that was made so many minutes after the first one, with annotations that are true.
func named(name string, minute int, marks ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(time.Duration(minute) * time.Minute))}
	for _, mark := range marks {
		metav1.SetMetaDataAnnotation(&m, mark, "true")
	}
	return m
}

func TestStorageClasses(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []storagev1.StorageClass
		want []Class
	}{
		{"none", nil, nil},
		{"in the order of their names", []storagev1.StorageClass{{ObjectMeta: named("slow", 1)}, {ObjectMeta: named("fast", 2)}}, []Class{{"fast", false}, {"slow", false}}},
		{"the default", []storagev1.StorageClass{{ObjectMeta: named("slow", 1, defaultStorage)}, {ObjectMeta: named("fast", 2)}}, []Class{{"fast", false}, {"slow", true}}},
		{"the default of an old manifest", []storagev1.StorageClass{{ObjectMeta: named("slow", 1, defaultStorageOld)}}, []Class{{"slow", true}}},
		{"the annotation of another kind", []storagev1.StorageClass{{ObjectMeta: named("slow", 1, defaultIngress)}}, []Class{{"slow", false}}},
		{"an annotation that says no", []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "slow", Annotations: map[string]string{defaultStorage: "false"}}}}, []Class{{"slow", false}}},
		{"of several defaults the newest", []storagev1.StorageClass{
			{ObjectMeta: named("a", 1, defaultStorage)}, {ObjectMeta: named("b", 3, defaultStorage)}, {ObjectMeta: named("c", 2, defaultStorage)},
		}, []Class{{"a", false}, {"b", true}, {"c", false}}},
		{"of equally new ones the first by name", []storagev1.StorageClass{
			{ObjectMeta: named("b", 1, defaultStorage)}, {ObjectMeta: named("a", 1, defaultStorage)},
		}, []Class{{"a", true}, {"b", false}}},
		{"the storage of other clusters", []storagev1.StorageClass{{ObjectMeta: named("liqo", 1, defaultStorage), Provisioner: "liqo.io/storage"}, {ObjectMeta: named("own", 0)}}, []Class{{"own", false}}},
		{"one that is being deleted", []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "gone", DeletionTimestamp: new(metav1.Now())}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, storageClasses(c.all)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestIngressClasses: more than are told of. The default is among them, wherever its name stands.
func TestIngressClasses(t *testing.T) {
	for _, at := range []int{-1, 0, 30, maxClasses - 1, maxClasses, maxClasses + 9} {
		var all []networkingv1.IngressClass
		for i := range maxClasses + 10 {
			c := networkingv1.IngressClass{ObjectMeta: named(fmt.Sprintf("c%03d", i), 0)}
			if i == at {
				c.ObjectMeta = named(c.Name, 0, defaultIngress)
			}
			all = append(all, c)
		}
		got := ingressClasses(all)
		if len(got) != maxClasses || !slices.IsSortedFunc(got, func(a, b Class) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("default at %d: %v", at, got)
		}
		var defaults []string
		for _, c := range got {
			if c.Default {
				defaults = append(defaults, c.Name)
			}
		}
		var want []string
		if at >= 0 {
			want = []string{fmt.Sprintf("c%03d", at)}
		}
		if !slices.Equal(defaults, want) {
			t.Errorf("default at %d: the defaults are %v", at, defaults)
		}
	}
}
