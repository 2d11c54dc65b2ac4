package release

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
)

// gatewayAtWork is a gateway that the controllers make of one of our templates.
type gatewayAtWork struct {
	name   client.ObjectKey
	object client.Object
	vars   template.Vars
	// template is what the gateway refers to.
	template     client.ObjectKey
	templateKind string
	// generation is that of its Deployment before anything was changed.
	generation int64
}

func (g gatewayAtWork) String() string { return "gateway " + g.name.String() }

// deployment is what the gateway runs in. Of a template that gives other names
// there is none of this name.
func (g gatewayAtWork) deployment() client.ObjectKey {
	return client.ObjectKey{Namespace: g.name.Namespace, Name: "gw-" + g.name.Name}
}

// gateways are those of the cluster.
func (p *Plan) gateways(ctx context.Context) (gs []gatewayAtWork, err error) {
	var servers networkingv1beta1.GatewayServerList
	var clients networkingv1beta1.GatewayClientList
	for _, list := range []client.ObjectList{&servers, &clients} {
		if err := p.cluster.Client.List(ctx, list); ignoreAbsent(err) != nil {
			return nil, p.cluster.Explain("list the gateways", err)
		}
	}
	add := func(o client.Object, spec any, ref corev1.ObjectReference, secret, kind string) {
		if ref.Kind != "" && ref.Kind != kind {
			return // of others, who replace their gateways themselves
		}
		g := gatewayAtWork{name: client.ObjectKeyFromObject(o), object: o, templateKind: kind, template: client.ObjectKey{Namespace: cmp.Or(ref.Namespace, p.cluster.LiqoNamespace), Name: ref.Name}}
		g.vars = template.Vars{Spec: spec, Name: o.GetName(), Namespace: o.GetNamespace(), GatewayUID: string(o.GetUID()),
			ClusterID: o.GetLabels()[networkingv1beta1.LabelRemoteClusterID], SecretName: secret}
		gs = append(gs, g)
	}
	for _, s := range servers.Items {
		add(&s, s.Spec, s.Spec.ServerTemplateRef, s.Spec.SecretRef.Name, "WgGatewayServerTemplate")
	}
	for _, c := range clients.Items {
		add(&c, c.Spec, c.Spec.ClientTemplateRef, c.Spec.SecretRef.Name, "WgGatewayClientTemplate")
	}
	return gs, nil
}

// atWork are the gateways that have a ready pod. An upgrade waits for these: what
// was broken before it, others must mend.
func (p *Plan) atWork(ctx context.Context) (gs []gatewayAtWork, broken []string, err error) {
	all, err := p.gateways(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range all {
		var d appsv1.Deployment
		switch err := p.cluster.Client.Get(ctx, g.deployment(), &d); {
		case absent(err):
		case err != nil:
			return nil, nil, p.cluster.Explain("read Deployment "+g.deployment().String(), err)
		case d.Status.AvailableReplicas > 0:
			g.generation = d.Generation
			gs = append(gs, g)
		case *d.Spec.Replicas > 0:
			broken = append(broken, g.name.String())
		}
	}
	return gs, broken, nil
}

// gatewaysBack waits until gateways are as their templates say now. Those that need
// no change are not told of.
func (p *Plan) gatewaysBack(ctx context.Context, tell progress.Func, gs []gatewayAtWork) error {
	tell = onlyNews(tell)
	for _, g := range gs {
		if missing, err := p.gatewayReady(ctx, g); missing == "" && err == nil && !p.replaced(ctx, g) {
			continue
		}
		err := waiter{cluster: p.cluster, tell: tell}.until(ctx, g.String()+" to be up to date", "Gateway "+g.name.String()+" is up to date", g.name.Namespace, g.name.Name,
			func(ctx context.Context) (string, error) { return p.gatewayReady(ctx, g) })
		if err != nil {
			return err
		}
	}
	return nil
}

// replaced tells whether a gateway's Deployment was changed since it was found at work.
func (p *Plan) replaced(ctx context.Context, g gatewayAtWork) bool {
	var d appsv1.Deployment
	return p.cluster.Client.Get(ctx, g.deployment(), &d) == nil && d.Generation != g.generation
}

// gatewayReady tells what the Deployment of a gateway lacks.
func (p *Plan) gatewayReady(ctx context.Context, g gatewayAtWork) (missing string, err error) {
	var d appsv1.Deployment
	if err := p.cluster.Client.Get(ctx, g.deployment(), &d); err != nil {
		return "", client.IgnoreNotFound(err) // somebody has removed it meanwhile
	}
	want, err := p.containers(ctx, g)
	if err != nil {
		return "", err
	}
	s := d.Status
	old := s.Replicas - s.UpdatedReplicas // one of which carries the traffic until a new one does
	switch replicas := *d.Spec.Replicas; {
	case want != nil && !slices.EqualFunc(want, d.Spec.Template.Spec.Containers, alikeContainers):
		return "its Deployment does not match the template yet", nil
	case s.ObservedGeneration < d.Generation:
		return "its pods are about to be replaced", nil
	case s.UpdatedReplicas < replicas || s.AvailableReplicas-old < replicas:
		return fmt.Sprintf("%d of %d pods are up to date and ready%s", max(0, s.AvailableReplicas-old), replicas, firstTrouble(ctx, p.cluster, d.Namespace, g.name.Name)), nil
	case old > 0:
		return "the old pods have not terminated yet", nil
	}
	return "", nil
}

// containers are those of a gateway as its template says. None: it does not say, and
// any will do.
func (p *Plan) containers(ctx context.Context, g gatewayAtWork) ([]corev1.Container, error) {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(g.templateKind))
	if err := p.cluster.Client.Get(ctx, g.template, u); err != nil {
		return nil, client.IgnoreNotFound(err) // the gateway stays as it is
	}
	source, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "deployment", "spec", "template", "spec", "containers")
	if err != nil || source == nil {
		return nil, nil
	}
	content, err := template.Render(map[string]any{"containers": source}, g.vars, corev1.PodSpec{})
	if err != nil {
		return nil, nil // the condition of the gateway says so, and it stays as it is
	}
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
		return nil, err
	}
	return spec.Containers, nil
}

// alikeContainers tells whether two containers run the same program in the same way.
// Everything else of a container the API server completes.
func alikeContainers(a, b corev1.Container) bool {
	return a.Name == b.Name && a.Image == b.Image && slices.Equal(a.Command, b.Command) && slices.Equal(a.Args, b.Args) &&
		equality.Semantic.DeepEqual(a.Resources, b.Resources)
}
