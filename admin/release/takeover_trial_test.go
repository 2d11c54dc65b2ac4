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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		// deletes says that somebody deletes the pod when that is told first.
		deletes bool
	}{
		{"a controller that no node has", controller(release.Values{"version": "none"}), "to run sluice.local/controller:none: 1 of 1 pods have not run",
			"while waiting for a node to run sluice.local/controller:none", true},
		{"agents that no node has", agents(release.Values{"version": "none"}), "to run sluice.local/fabric:none: 2 of 2 pods have not run",
			"while waiting for all nodes to run sluice.local/fabric:none", false},
		{"another program", agents(release.Values{"name": "sluice.local/wrong"}), "no time", "image sluice.local/wrong:unknown is none of Sluice's", false},
	} {
		o, err := s.takeOver(release.Options{Values: tt.values})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*controlplanetest.Patience)
		deleted, again := false, false
		_, err = o.Run(ctx, func(e progress.Event) {
			s.tell(e)
			again = again || strings.Contains(e.Text, "somebody has deleted Pod liqo/sluice-trial-controller, which is made again")
			switch {
			case !strings.Contains(e.Text, tt.until):
			case tt.deletes && !deleted:
				deleted = true
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "sluice-trial-controller"}}
				if err := s.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
					t.Error(err)
				}
			case again == tt.deletes:
				cancel()
			}
		})
		cancel()
		if again != tt.deletes {
			t.Errorf("%s: a pod that was deleted is made again: %v", tt.name, again)
		}
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

// TestTrialsAreAdmitted: namespaces that restrict their pods admit what tries an image.
func TestTrialsAreAdmitted(t *testing.T) {
	t.Parallel()
	c := controlplanetest.StartBare(t)
	if err := c.CreateNamespace("strict", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}); err != nil {
		t.Fatal(err)
	}
	for _, openShift := range []bool{false, true} {
		pods, err := release.TrialPods(openShift)
		if err != nil || len(pods) != 4 {
			t.Fatalf("%d pods, %v", len(pods), err)
		}
		for _, pod := range pods {
			pod.Namespace = "strict"
			if err := c.Client.Create(t.Context(), &pod, client.DryRunAll); err != nil {
				t.Errorf("OpenShift %v, %s: %v", openShift, pod.Name, err)
			}
			if user := pod.Spec.SecurityContext.RunAsUser; (user == nil) != openShift || user != nil && *user == 0 {
				t.Errorf("OpenShift %v, %s runs as %v", openShift, pod.Name, user)
			}
			placed := pod.Spec.NodeSelector["kind"] == "edge" || pod.Spec.Affinity != nil && len(pod.Spec.Tolerations) > 0 // of the agents
			if c := pod.Spec.Containers[0]; c.Image == "" || c.ImagePullPolicy != "Always" || len(pod.Spec.ImagePullSecrets) != 1 || !placed {
				t.Errorf("%s lacks something: %+v", pod.Name, pod.Spec)
			}
		}
	}
}
