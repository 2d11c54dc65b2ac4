package release_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testImages: as long as Sluice's programs have not run on the nodes, nothing of Liqo's ends, and a wrong image leaves nothing.
func testImages(t *testing.T, s *takeoverSite) {
	before := slices.Sorted(maps.Keys(s.everything()))
	controller := func(image release.Values) release.Values {
		return release.Values{"controllerManager": release.Values{"image": image}}
	}
	agents := func(image release.Values) release.Values {
		return release.Values{"networking": release.Values{"fabric": release.Values{"image": image}}}
	}
	for _, tt := range []struct {
		name   string
		values release.Values
		until  string // the line of progress after which there is no time left
		want   string
	}{
		{"a controller that no node has", controller(release.Values{"version": "none"}), "to run sluice.local/controller:none: 1 of 1 pods have not run",
			"while waiting for a node to run sluice.local/controller:none"},
		{"agents that no node has", agents(release.Values{"version": "none"}), "to run sluice.local/fabric:none: 2 of 2 pods have not run",
			"while waiting for all nodes to run sluice.local/fabric:none"},
		{"another program", agents(release.Values{"name": "sluice.local/wrong"}), "no time", "image sluice.local/wrong:unknown is none of Sluice's"},
	} {
		o, err := s.takeOver(release.Options{Values: tt.values})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*controlplanetest.Patience)
		_, err = o.Run(ctx, func(e progress.Event) {
			s.tell(e)
			if strings.Contains(e.Text, tt.until) {
				cancel()
			}
		})
		cancel()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
		var agent appsv1.DaemonSet
		s.Read(t, "liqo", "liqo-fabric", &agent)
		if len(agent.Spec.Template.Spec.NodeSelector) != 1 || agent.Status.NumberReady != 2 {
			t.Errorf("%s: Liqo's node agents end: %v, %+v", tt.name, agent.Spec.Template.Spec.NodeSelector, agent.Status)
		}
	}
	controlplanetest.Eventually(t, "nothing of the trials is left", func(context.Context) error {
		if diff := cmp.Diff(before, slices.Sorted(maps.Keys(s.everything()))); diff != "" {
			return fmt.Errorf("(-before +after)\n%s", diff)
		}
		return nil
	})
}
