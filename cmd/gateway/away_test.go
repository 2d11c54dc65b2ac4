package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// While the API server is away traffic flows, leaders lead, and nothing flaps.
func testAPIServerAway(t *testing.T, c *controlplanetest.Cluster) {
	server, client, a, b := started(t, c, shortLease...)
	lateServer, lateClient := newPeering(t, c)
	for _, s := range []*side{lateServer, lateClient} {
		s.create(t, s.manifests(objectManifests)...)
	}
	c.StopAPIServer()
	stopped := time.Now()
	late := []*pod{lateServer.start(t, "c"), lateClient.start(t, "d")}
	for time.Since(stopped) < 2*shortLeaseDuration {
		for _, p := range []*pod{a, b} {
			answered(t, controlplanetest.Patience, p, time.Now())
			r, err := p.report(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Sync.Peer.Value != networkingv1beta1.Connected || r.Sync.Role != control.RoleActive || len(r.DataPlane.Remote) != 2 {
				t.Fatalf("after %v: %+v", time.Since(stopped), r.Sync)
			}
		}
	}
	r, err := a.report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Cluster.API.Connected || r.Cluster.API.Error == "" {
		t.Errorf("state of the API server: %+v", r.Cluster.API)
	}
	for _, p := range late {
		code, body := getBody(t, "http://"+p.s.host+":8083/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "waiting: cannot read from the API server yet: ") {
			t.Errorf("readyz of a gateway that starts: %d %q", code, body)
		}
	}
	if err := c.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for _, s := range []*side{server, client} {
		controlplanetest.Eventually(t, "the status resumes", func(ctx context.Context) error {
			conn, err := s.connection(ctx)
			if err == nil && (conn.Status.Value != networkingv1beta1.Connected || conn.Status.Latency.Timestamp.Time.Before(back.Truncate(time.Second))) {
				err = fmt.Errorf("%+v", conn.Status)
			}
			return err
		})
	}
	t.Logf("the status resumed %v after the API server was back", time.Since(back))
	untilConnected(t, lateServer, lateClient)
	t.Logf("gateways that were started without it are connected %v after", time.Since(back))
	for _, p := range []*pod{a, b} {
		controlplanetest.Eventually(t, "all watches", func(ctx context.Context) error {
			r, err := p.report(ctx)
			if err == nil && !r.Cluster.API.Connected {
				err = errors.New(r.Cluster.API.Error)
			}
			return err
		})
		for _, line := range []string{"cannot read from the API server", "reading from the API server again"} {
			if n := strings.Count(p.log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times", line, n)
			}
		}
		if strings.Contains(p.log.String(), "standing by") {
			t.Error("the leader stepped down")
		}
	}
}
