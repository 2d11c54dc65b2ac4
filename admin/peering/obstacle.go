package peering

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// obstacle is why a provider does not hear what this cluster asks. Unlike a [complaint] it can go away by itself: an API
// server comes back.
type obstacle struct {
	text string
	// address is where the API server of the provider does not answer; empty if the obstacle is another one.
	address string
}

func (o *obstacle) Error() string { return o.text }

// obstacleToPeer returns what the controllers say about the way to the provider; nil: nothing is in the way, or the user
// may not see it.
func (e *end) obstacleToPeer(ctx context.Context) *obstacle {
	fc := new(corev1beta1.ForeignCluster)
	if e.Client.Get(ctx, client.ObjectKey{Name: e.peer.id}, fc) == nil {
		for _, c := range fc.Status.Conditions {
			if c.Type == corev1beta1.ConditionAPIServer && c.Status == corev1beta1.StatusError {
				return &obstacle{c.Message, fc.Status.APIServerURL}
			}
		}
		for _, c := range fc.Status.Modules.Authentication.Conditions {
			if c.Type == corev1beta1.ConditionAuthIdentityControlPlane && c.Reason == corev1beta1.ReasonIdentityDenied {
				return &obstacle{text: c.Message}
			}
		}
	}
	return e.obstacleInEvents(ctx)
}

// obstacleInEvents is the latest event of the identity's Secret, if it is a warning. An event of an earlier version of the
// Secret is about credentials or an address that it no longer has.
func (e *end) obstacleInEvents(ctx context.Context) *obstacle {
	var secrets metav1.PartialObjectMetadataList // without the private keys
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	var all corev1.EventList
	if e.Client.List(ctx, &secrets, client.InNamespace(e.namespace), client.MatchingLabels{
		authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity), networkingv1beta1.LabelRemoteClusterID: e.peer.id,
	}) != nil || len(secrets.Items) == 0 || e.Client.List(ctx, &all, client.InNamespace(e.namespace)) != nil {
		return nil
	}
	latest := latestEvent(all.Items, secrets.Items)
	if latest == nil || latest.Type != corev1.EventTypeWarning {
		return nil
	}
	o := &obstacle{text: fmt.Sprintf("Secret %s: %s: %s", latest.InvolvedObject.Name, latest.Reason, latest.Message)}
	if latest.Reason == authv1beta1.ReasonAPIServerUnreachable {
		o.address = e.identityAddress(ctx)
	}
	return o
}

// latestEvent returns the latest event about any of some Secrets as they are now; nil: there is none.
func latestEvent(events []corev1.Event, secrets []metav1.PartialObjectMetadata) (latest *corev1.Event) {
	for i := range events {
		ev := &events[i]
		for k := range secrets {
			about, s := ev.InvolvedObject, &secrets[k]
			if about.UID == s.UID && about.ResourceVersion == s.ResourceVersion && (latest == nil || survey.EventTime(ev).After(survey.EventTime(latest))) {
				latest = ev
			}
		}
	}
	return latest
}

// identityAddress is where the identity for the peer expects the API server; empty: it is not known.
func (e *end) identityAddress(ctx context.Context) string {
	var i authv1beta1.Identity
	if e.Client.Get(ctx, e.named(identityName(e.peer.id)), &i) != nil {
		return ""
	}
	return i.Spec.AuthParams.APIServer
}

// answerClues say what to do if the provider does not answer.
func (e *end) answerClues(ctx context.Context, told string) []string {
	o := e.obstacleToPeer(ctx)
	if o == nil {
		return e.controllerClues(ctx, told)
	}
	var lines []string
	if !saysTheSame(told, o.text) {
		lines = append(lines, o.text)
	}
	if o.address == "" {
		return append(lines, "Next: solve that, then run the command again")
	}
	set, again := []string{"install", "--set", "apiServer.address=https://ADDRESS:PORT"}, "run the command again"
	command := "liqoctl " + strings.Join(set, " ")
	if e.peer.Cluster != nil {
		command = e.peer.Command(set...)
	} else { // this command does not give the identity a new address
		again = "'liqoctl authenticate', and the command again"
	}
	return append(lines, fmt.Sprintf("Next: cluster %s reaches the API server of cluster %s at %s; if that is not the right address, set another one in cluster %[2]s, then %[4]s:",
		e.id, e.peer.id, o.address, again), command)
}

// lookAgain is how often it is looked for obstacles: not as often as for the answer, which takes one request.
const lookAgain = time.Second

// obstacleWatch looks for obstacles.
type obstacleWatch struct {
	last time.Time
	now  *obstacle
}

// missing says what the answer waits for. An obstacle is an error, unless the user has said how long to wait.
func (w *obstacleWatch) missing(ctx context.Context, e *end) (string, error) {
	if time.Since(w.last) >= lookAgain {
		w.now, w.last = e.obstacleToPeer(ctx), time.Now()
	}
	switch {
	case w.now == nil:
		return "cluster " + e.peer.id + " has not answered yet", nil
	case e.options.UntilTimeout:
		return w.now.text, nil
	}
	return "", w.now
}
