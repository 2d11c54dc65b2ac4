package peering_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
)

func ExampleConnect() {
	var rome, milan *access.Cluster // of access.New
	err := peering.Connect(context.Background(), rome, milan, peering.Options{
		Wait: true, Timeout: 2 * time.Minute,
		Server: peering.ServerFlags{ServiceType: corev1.ServiceTypeNodePort}, // in milan
	}, func(e progress.Event) { fmt.Println(e.Cluster, e.Text) })
	if err != nil {
		fmt.Println(err)
	}
}
