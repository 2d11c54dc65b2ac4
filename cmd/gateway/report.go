package main

import (
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/cluster"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/objects/mirror"
)

// report is everything that "gateway status" shows. Its JSON form is what
// scripts read: fields are added, not renamed.
type report struct {
	Version   string           `json:"version"`
	Time      time.Time        `json:"time"`
	Started   time.Time        `json:"started"`
	Manifests string           `json:"manifests,omitempty"` // empty: in a cluster
	Cluster   *clusterReport   `json:"cluster,omitempty"`   // nil: standalone
	Sync      control.State    `json:"sync"`
	DataPlane dataplane.Status `json:"dataPlane"`
	Services  *services.Status `json:"services,omitempty"` // nil: without --services
	Memory    daemon.Memory    `json:"memory"`
}

// clusterReport is what only a gateway in a cluster has to say.
type clusterReport struct {
	API      mirror.State           `json:"api"`
	Election *cluster.ElectionState `json:"election,omitempty"` // nil: the only replica
}
