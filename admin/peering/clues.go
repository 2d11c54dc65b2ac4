package peering

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// evidence is what may explain why a step does not proceed. What cannot be read is left
// out: the failure itself is reported in any case.
type evidence struct {
	// Installation are the Deployments of the installation.
	Installation []appsv1.Deployment
	// Objects say by their conditions how far they are.
	Objects []judged
	// Deployments and Pods are those of the gateway, or of the virtual nodes.
	Deployments []appsv1.Deployment
	Pods        []corev1.Pod
	// Events are those of the namespace.
	Events []corev1.Event
	// Now is when it was read.
	Now time.Time
}

// judged is an object with conditions.
type judged struct {
	Name       string // "GatewayServer liqo-tenant-milan/milan"
	UID        types.UID
	Conditions []metav1.Condition
}

// controllerClues describes the state of the installation.
func (e *end) controllerClues(ctx context.Context, told string) []string {
	v := evidence{Now: time.Now()}
	e.seeInstallation(ctx, &v)
	return v.explain(told)
}

// configurationClues describes the state of the Configuration.
func (e *end) configurationClues(ctx context.Context, told string) []string {
	v := evidence{Now: time.Now()}
	e.seeInstallation(ctx, &v)
	var c networkingv1beta1.Configuration
	if e.Client.Get(ctx, e.named(e.configuration()), &c) == nil {
		v.Objects = append(v.Objects, judged{"Configuration " + c.Namespace + "/" + c.Name, c.UID, c.Status.Conditions})
	}
	e.seeEvents(ctx, &v, e.configuration())
	return v.explain(told)
}

// gatewayClues describes the state of this end's gateway.
func (e *end) gatewayClues(ctx context.Context, told string) []string {
	v := evidence{Now: time.Now()}
	e.seeInstallation(ctx, &v)
	e.seeGateway(ctx, &v)
	e.seeEvents(ctx, &v, e.gateway())
	return v.explain(told)
}

// connectionClues describes the state of both gateways and what they report about each other.
func (e *end) connectionClues(ctx context.Context, told string) []string {
	v := evidence{Now: time.Now()}
	e.seeGateway(ctx, &v)
	e.seeConnection(ctx, &v)
	e.peer.seeConnection(ctx, &v)
	return v.explain(told)
}

func (e *end) seeInstallation(ctx context.Context, v *evidence) {
	var list appsv1.DeploymentList
	if e.Client.List(ctx, &list, client.InNamespace(e.LiqoNamespace)) == nil {
		v.Installation = list.Items
	}
}

func (e *end) seeGateway(ctx context.Context, v *evidence) {
	if g, err := e.readGateway(ctx); err == nil {
		conditions := slices.DeleteFunc(slices.Clone(g.status().conditions), func(c metav1.Condition) bool {
			return c.Type == string(networkingv1beta1.ConditionPeerKeyReady) && e.peer.key == nil // that comes later
		})
		v.Objects = append(v.Objects, judged{g.String(), g.GetUID(), conditions})
	}
	e.seePods(ctx, v, client.MatchingLabels{networkingv1beta1.LabelGatewayName: e.gateway(), networkingv1beta1.LabelGatewayNamespace: e.namespace})
}

// seePods reads the Deployments and pods of the tenant namespace that have some labels.
func (e *end) seePods(ctx context.Context, v *evidence, of client.MatchingLabels) {
	var deployments appsv1.DeploymentList
	if e.Client.List(ctx, &deployments, client.InNamespace(e.namespace), of) == nil {
		v.Deployments = deployments.Items
	}
	var pods corev1.PodList
	if e.Client.List(ctx, &pods, client.InNamespace(e.namespace), of) == nil {
		v.Pods = pods.Items
	}
}

func (e *end) seeConnection(ctx context.Context, v *evidence) {
	c, err := e.connection(ctx)
	if err != nil || c == nil {
		return
	}
	name := e.tagged("Connection " + c.Namespace + "/" + c.Name)
	v.Objects = append(v.Objects, judged{name + ", " + cmp.Or(string(c.Status.Value), "without status"), c.UID, c.Status.Conditions})
}

// seeEvents reads the events about objects that have the name, or whose names
// begin with gw- and the name as those of a gateway do.
func (e *end) seeEvents(ctx context.Context, v *evidence, name string) {
	var list corev1.EventList
	if e.Client.List(ctx, &list, client.InNamespace(e.namespace)) != nil {
		return
	}
	v.Events = slices.DeleteFunc(list.Items, func(ev corev1.Event) bool {
		about := ev.InvolvedObject.Name
		return about != name && about != "gw-"+name && !strings.HasPrefix(about, "gw-"+name+"-")
	})
	slices.SortStableFunc(v.Events, func(a, b corev1.Event) int { return survey.EventTime(&b).Compare(survey.EventTime(&a)) })
}
