package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/cluster"
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

// A gateway that is started again while the API server is away goes on as it was, in its
// role and by its objects, and says so. A replica that was deposed meanwhile steps back
// as soon as the API server says so.
func testRestartWhileAPIServerAway(t *testing.T, c *controlplanetest.Cluster) {
	cache := func() string { return "--cache-dir=" + t.TempDir() }
	server, client := newPeering(t, c)
	for _, s := range []*side{server, client} {
		s.create(t, s.manifests(objectManifests)...)
	}
	ofA, ofB := append([]string{cache()}, shortLease...), append([]string{cache()}, shortLease...)
	a, b := server.start(t, "a", ofA...), client.start(t, "b", ofB...)
	untilConnected(t, server, client)
	for _, dir := range []string{ofA[0], ofB[0]} {
		controlplanetest.Eventually(t, "the objects and the lease are kept", func(context.Context) error {
			text, err := os.ReadFile(filepath.Join(strings.TrimPrefix(dir, "--cache-dir="), cluster.KeptFile))
			if err == nil && !(strings.Contains(string(text), "10.61.0.0/16") && strings.Contains(string(text), `"holderIdentity"`)) {
				err = fmt.Errorf("kept is %s", text)
			}
			return err
		})
	}

	c.StopAPIServer()
	a.kill()
	b.kill()
	a, b = server.start(t, "a", ofA...), client.start(t, "b", ofB...)
	for _, p := range []*pod{a, b} {
		answered(t, controlplanetest.Patience, p, time.Now())
		r, err := p.report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Sync.Role != control.RoleActive || r.Sync.Kept.IsZero() || len(r.DataPlane.Remote) != 2 || len(r.DataPlane.Nodes) != 1 || r.Cluster.API.Connected {
			t.Errorf("%s: %+v", p.name, r.Sync)
		}
		if code, body := getBody(t, "http://"+p.s.host+":8083/readyz"); code != http.StatusOK || !strings.Contains(body, "kept over a restart") {
			t.Errorf("readyz: %d %q", code, body)
		}
		if _, body := getBody(t, "http://"+p.s.host+":8082/metrics"); !strings.Contains(body, "sluice_config_kept 1") {
			t.Error("the metrics do not say that the objects are kept ones")
		}
	}
	b.kill() // its lease will have expired before it comes back

	if err := c.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	elsewhere := *client
	elsewhere.host = fmt.Sprintf("127.7.%d.9", client.number)
	other := elsewhere.start(t, "other", shortLease...)
	controlplanetest.Eventually(t, "another replica leads", func(ctx context.Context) error { return client.ledBy(ctx, "other") })
	untilConnected(t, server, client)
	controlplanetest.Eventually(t, "the objects are read again", func(ctx context.Context) error {
		r, err := a.report(ctx)
		if err == nil && (!r.Sync.Kept.IsZero() || !r.Cluster.API.Connected) {
			err = fmt.Errorf("%+v", r.Sync)
		}
		return err
	})
	b = client.start(t, "b", ofB...)
	controlplanetest.Eventually(t, "the one that led before stands by", func(ctx context.Context) error {
		r, err := b.report(ctx)
		if err == nil && (r.Sync.Role != control.RoleStandBy || r.Cluster.Election.Holder != "other" || r.Sync.Generation == 0) {
			err = fmt.Errorf("%+v", r.Cluster.Election)
		}
		return err
	})
	if strings.Contains(b.log.String(), "msg=leading") {
		t.Error("a gateway leads by the lease of before, although the API server answers")
	}
	answered(t, controlplanetest.Patience, other, time.Now())
}
