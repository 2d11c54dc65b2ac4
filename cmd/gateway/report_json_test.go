package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/gateway/cluster"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/tunnel"
)

// TestReportJSON fixes the names in "gateway status -o json": scripts read them,
// and so does admin/survey, whose tests read the golden file.
func TestReportJSON(t *testing.T) {
	var out bytes.Buffer
	if err := daemon.WriteJSON(&out, fullReport()); err != nil {
		t.Fatal(err)
	}
	daemontest.Golden(t, "report.json", out.String())
}

// fullReport leaves nothing out that could be left out.
func fullReport() report {
	r := busyReport()
	r.Sync.Role, r.Sync.Endpoint = control.RoleActive, "gw.example.com:51840"
	r.Sync.Waiting = manifests.Problems{{Reason: "reading the objects of the cluster"}}
	r.Sync.Ignored = manifests.Problems{{Object: "IP default/printer", Field: "spec.ip", Reason: "192.168.1.10 is mapped by IP scanner already"}}
	r.Sync.Peer.Lost = 6
	r.Sync.Peer.Silence = control.Silence{Reason: "NoAnswer", Message: "the peer's gateway does not answer any more"}
	r.DataPlane.Tunnel.LookupError, r.DataPlane.Tunnel.FormerPeer = "no such host", tunnel.PublicKey{4, 5, 6}
	r.DataPlane.Tunnel.Unconfirmed, r.DataPlane.Tunnel.LastReplaced = true, r.Time.Add(-2*time.Second)
	r.DataPlane.Filter = []filter.ChainStatus{{
		Table: "tenant/filter", Chain: "forward", Hook: "forward", Policy: "drop", Dropped: filter.Packets{Egress: 1},
		Rules: []filter.RuleStatus{{Rule: "web", Action: "accept", Packets: &filter.Packets{Ingress: 2}}},
	}}
	r.Cluster = &clusterReport{
		API: mirror.State{
			Away: r.Time.Add(-3 * time.Minute), Error: "ips: dial tcp 10.96.0.1:443: connect: connection refused",
			Watches: []mirror.WatchState{{Name: "internalnodes", Objects: 3, Synced: true}},
		},
		Election: &cluster.ElectionState{Lease: "server.tenant.server.connections.liqo.io", Identity: "gw-server-a", Holder: "gw-server-a", Leading: true},
	}
	r.DataPlane.Routes = r.DataPlane.Routes[:1]
	return r
}
