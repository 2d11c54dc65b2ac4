package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// Of three replicas of a gateway that is well, the one that leads renews the Lease once in each
// period, and the others write nothing but that they stand by, once in two minutes. What is
// counted is what the API server tells a watch: each version of an object is one write. The
// period is a tenth of the default, which is what docs/operations.md counts with.
func testWrites(t *testing.T, c *controlplanetest.Cluster) {
	const (
		renewals = 30
		period   = 500 * time.Millisecond // of longLease
		toldEach = 2 * time.Minute
		standBys = 2
	)
	server, client := newPeering(t, c)
	for _, s := range []*side{server, client} {
		s.create(t, s.manifests(objectManifests)...)
	}
	server.start(t, "s")
	client.start(t, "a", longLease...)
	controlplanetest.Eventually(t, "a leads", func(ctx context.Context) error { return client.ledBy(ctx, "a") })
	for i, name := range []string{"b", "c"} {
		other := *client
		other.host = fmt.Sprintf("127.7.%d.%d", client.number, 9+i)
		p := other.start(t, name, longLease...)
		within(t, controlplanetest.Patience, name+" stands by", func(ctx context.Context) error { return standsBy(ctx, p) })
	}
	untilConnected(t, server, client)

	leases, err := c.Clientset.CoordinationV1().Leases(client.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 1 {
		t.Fatalf("%d Leases, %v", len(leases.Items), err)
	}
	was := leases.Items[0].DeepCopy()
	watch, err := c.Clientset.CoordinationV1().Leases(client.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: leases.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	began, announced := time.Now(), 0
	var times []time.Time
	for len(times) < renewals {
		event, open := <-watch.ResultChan() // the leader renews as long as it runs
		now, ok := event.Object.(*coordinationv1.Lease)
		if !open || !ok {
			t.Fatalf("after %d renewals the watch tells %+v", len(times), event)
		}
		if holder := now.Spec.HolderIdentity; holder == nil || *holder != "a" {
			t.Fatalf("the Lease has gone to %v", holder)
		}
		switch {
		case !now.Spec.RenewTime.Equal(was.Spec.RenewTime):
			times = append(times, now.Spec.RenewTime.Time)
		case now.Labels[networkingv1beta1.LabelStandBy] != was.Labels[networkingv1beta1.LabelStandBy]:
			announced++
		default:
			t.Errorf("a write that says nothing: %+v", now.ObjectMeta)
		}
		was = now
	}
	took := time.Since(began)
	t.Logf("%d renewals and %d announcements in %v", renewals, announced, took)
	if most := standBys * (1 + int(took/toldEach)); announced > most {
		t.Errorf("%d announcements of %d replicas in %v, want at most %d", announced, standBys, took, most)
	}
	for i := range times[1:] {
		if pause := times[i+1].Sub(times[i]); pause < period*9/10 {
			t.Errorf("renewed after %v, before the period of %v was over", pause, period)
			break
		}
	}
}
