package kubelab

import (
	"testing"
	"time"
)

// TestLab runs everything on one lab, which takes seconds to start.
func TestLab(t *testing.T) {
	l := New(t, Options{})
	for _, c := range l.Clusters {
		out, err := c.Kubectl("get", "nodes", "-o", "wide")
		if err != nil {
			t.Fatal(err)
		}
		t.Log(out)
	}
	time.Sleep(10 * time.Second)
	out, err := l.Clusters[0].Kubectl("get", "pods,svc,endpointslices,nodes", "-A", "-o", "wide")
	t.Log(out, err)
}
