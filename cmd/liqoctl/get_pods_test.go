package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
	"github.com/sluice-net/sluice/test/golden"
)

func TestPodsLook(t *testing.T) {
	pods := []survey.OffloadedPod{
		{Namespace: "bank-naples", Name: "guest", From: "naples", In: "rome", Node: "worker-2", Phase: corev1.PodRunning, Ready: true, IP: "10.243.2.7", OtherNamespace: "bank", Created: someTime.Add(-time.Hour)},
		{Namespace: "shop", Name: "away", From: "rome", In: "milan", Node: "milan", Phase: corev1.PodFailed, Reason: "failed: OffloadingAborted", OtherNamespace: "shop-rome", Created: someTime.Add(-5 * time.Minute)},
		{Namespace: "shop", Name: "waiting", From: "rome", Phase: corev1.PodPending, Reason: "no node takes it: Unschedulable", Created: someTime.Add(-time.Minute)},
	}
	for _, wide := range []bool{false, true} {
		name := "get-pods.txt"
		if wide {
			name = "get-pods-wide.txt"
		}
		golden.Compare(t, "testdata/info/"+name, shown(func(p *console.Page) { p.Table(podTable(pods, wide, someTime)) }))
	}
}
