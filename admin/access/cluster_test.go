package access

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestCommand(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  string
	}{
		{nil, "liqoctl install --set a.b=true"},
		{[]string{"--kubeconfig=/home/me/.kube/rome.yaml", "--context=admin@rome"}, "liqoctl install --set a.b=true --kubeconfig=/home/me/.kube/rome.yaml --context=admin@rome"},
		{[]string{"--context=Zoë's $(cluster)"}, `liqoctl install --set a.b=true '--context=Zoë'\''s $(cluster)'`},
	} {
		c := &Cluster{Options: Options{Flags: tt.flags}}
		if got := c.Command("install", "--set", "a.b=true"); got != tt.want {
			t.Errorf("%s; want %s", got, tt.want)
		}
	}
}

// TestWhereAllowed: the own namespace is asked only where everywhere is refused, and tells nothing where it is refused too.
func TestWhereAllowed(t *testing.T) {
	denied, away := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), errors.New("away")
	for _, tt := range []struct {
		name            string
		o               Options
		everywhere, own error
		within          string
		err             error
		asked           int
	}{
		{"everywhere", Options{Namespace: "n"}, nil, nil, "", nil, 1},
		{"it cannot be asked", Options{Namespace: "n"}, away, nil, "", away, 1},
		{"in the own namespace", Options{Namespace: "n"}, denied, nil, "n", nil, 2},
		{"in the own namespace, which cannot be asked", Options{Namespace: "n"}, denied, away, "n", away, 2},
		{"nowhere", Options{Namespace: "n"}, denied, apierrors.NewForbidden(schema.GroupResource{}, "", nil), "", denied, 2},
		{"without a namespace of one's own", Options{Namespace: "default"}, denied, nil, "", denied, 1},
	} {
		asked := 0
		within, err := (&Cluster{Options: tt.o}).WhereAllowed(func(namespace string) error {
			asked++
			if namespace == "" {
				return tt.everywhere
			}
			return tt.own
		})
		if within != tt.within || !errors.Is(err, tt.err) || asked != tt.asked {
			t.Errorf("%s: %q, %v, asked %d times", tt.name, within, err, asked)
		}
	}
}
