package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/golden"
)

// romesPeering is what an API server has of a peering that no controller looks at.
const romesPeering = `
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan, liqo.io/tenant-namespace: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap, namespace: liqo}
data: {CLUSTER_ID: rome}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  remote: {cidr: {pod: [10.243.0.0/16], external: [10.70.0.0/16]}}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec: {containers: [{name: client, image: none}]}
`

// TestOneOfTwoIsSilent: whatever one cluster can tell alone is told, and which one is silent, at which address.
func TestOneOfTwoIsSilent(t *testing.T) {
	c := controlplanetest.Start(t)
	c.Apply(romesPeering)
	status, drops := []string{"network", "status", "--interval", "0"}, []string{"network", "drops"}
	trace := []string{"network", "trace", "default/client", "10.71.2.20"}
	servers := map[string]string{ // by what is said of them
		silent(t):            " does not answer: check that the cluster runs, that no firewall or VPN is in the way",
		"http://127.0.0.1:1": " cannot be reached: check that the cluster runs",
	}
	for _, tt := range []struct {
		silent string
		args   []string
		want   string
		more   []string
	}{
		{access.Remote, status, "CLUSTER   PEER ", []string{"rome      milan "}},
		{access.Local, status, "rome      milan ", nil},
		{access.Remote, append(status, "milan"), "rome      milan ", nil},
		{access.Local, append(status, "turin"), noPeersRead, nil},
		{access.Remote, append(status, "-o", "json"), `"peer": "milan"`, []string{`"unread": [`, `"cluster": "remote"`, `"server": "http://127.0.0.1:`, `"error": "(remote) `}},
		{access.Local, append(status, "-o", "yaml"), "peer: milan", []string{"unread:\n- cluster: local\n", "server: http://127.0.0.1:"}},
		{access.Remote, drops, "(local) the peering with milan has no gateway", nil},
		{access.Local, drops, "(remote) the peering with milan has no gateway", nil},
		{access.Remote, trace, "default/client", []string{"the packet stops: "}},
		{access.Local, trace, "", nil},
		{access.Remote, []string{"test", "network"}, "", nil},
	} {
		for server, why := range servers {
			t.Run(tt.silent+" "+strings.Join(tt.args, " ")+why[:12], func(t *testing.T) {
				flags := []string{"--kubeconfig", c.Kubeconfig, "--remote-kubeconfig", kubeconfigFor(t, server), "--remote-request-timeout=1s"}
				if tt.silent == access.Local {
					flags = []string{"--remote-kubeconfig", c.Kubeconfig, "--kubeconfig", kubeconfigFor(t, server), "--request-timeout=1s"}
				}
				got := liqoctl(t.Context(), slices.Concat(tt.args, flags)...)
				all := got.stdout + got.stderr
				for _, want := range append(tt.more, tt.want, "the API server "+server+why, "("+tt.silent+") ") {
					if !strings.Contains(all, want) {
						t.Errorf("%q is not in\n%s", want, all)
					}
				}
				if got.code != 1 {
					t.Errorf("exit code %d", got.code)
				}
			})
		}
	}
}

// TestWatchWithASilentCluster: one of two is shown alone, as often as it answers, and the other one comes into the table
// when it does.
func TestWatchWithASilentCluster(t *testing.T) {
	milan := romeSurvey()
	milan.Installation.ClusterID = "milan"
	milan.Peers = []survey.Peer{peerSurvey("rome"), peerSurvey("turin")}
	for _, tt := range []struct {
		name    string
		silent  int
		reading [2]*survey.Cluster
	}{
		{"remote", 1, [2]*survey.Cluster{romeSurvey(), milan}},
		{"local", 0, [2]*survey.Cluster{romeSurvey(), milan}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var out bytes.Buffer
				a := newApp("liqoctl", strings.NewReader(""), &out, io.Discard)
				r := &statusRun{app: a, watch: true, interval: 2 * time.Second, out: &output{w: &out}}
				for _, name := range []string{access.Local, access.Remote} {
					r.sites = append(r.sites, &statusSite{Cluster: &access.Cluster{Options: access.Options{Name: name}, Config: &rest.Config{Host: "https://" + name}}})
				}
				none := errors.New("(" + tt.name + ") reach the cluster: the API server https://" + tt.name + " does not answer")
				r.sites[tt.silent].err = none
				start, read := time.Now(), 0
				r.readOne = func(ctx context.Context, s *statusSite) (*survey.Cluster, error) {
					i := 0
					if s.Name == access.Remote {
						i = 1
					}
					now := time.Since(start)
					if i != tt.silent {
						read++
						return tt.reading[i], nil
					}
					// It answers from the 40th second to the 60th.
					if now < 40*time.Second || now > time.Minute {
						wait := time.NewTimer(15 * time.Second)
						defer wait.Stop()
						select {
						case <-ctx.Done():
						case <-wait.C:
						}
						return nil, none
					}
					return tt.reading[i], nil
				}
				if err := r.follow(ctx); err != nil {
					t.Error(err)
				}
				// Once it is silent the other one is read every other second, but for the first time.
				if read < 50 {
					t.Errorf("the cluster that answers was read %d times in two minutes", read)
				}
				golden.Compare(t, "testdata/status/watch-without-"+tt.name+".txt", out.String())
			})
		})
	}
}
