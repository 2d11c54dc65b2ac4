package access

import "testing"

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
