package virtualkubelet

import (
	"fmt"
	"testing"

	"k8s.io/client-go/rest"
)

// TestLines: what becomes of a pod that is at the provider waits for one of a thousand pods that are to be made, and for one
// object of each other kind, and a pod that is gone is nobody special any more.
func TestLines(t *testing.T) {
	k, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{ClusterID: "rome", PeerID: "milan"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.queue.ShutDown)
	for i := range 1000 {
		k.queue.Add(key{node: "milan", namespace: "shop", name: fmt.Sprint("new-", i)})
		k.queue.Add(key{node: "milan", kind: configMaps, namespace: "shop", name: fmt.Sprint("map-", i)})
	}
	running := key{node: "milan", namespace: "shop", name: "running"}
	k.made.Store(running, nil)
	for range 3 {
		k.queue.Add(running)
		for before := 0; ; before++ {
			at, _ := k.queue.Get()
			k.queue.Done(at)
			if at == running {
				break
			}
			if before == 2 {
				t.Fatalf("a third one, %v, was looked at before the pod that runs", at)
			}
		}
	}
	k.forget("milan")
	if got := k.line(running); got != "" {
		t.Errorf("a pod of a node that is forgotten waits in line %q", got)
	}
}
