package gatewaydeploy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// serverFacts are those of a server a in namespace t that has just been created.
func serverFacts() Facts {
	s := &networkingv1beta1.WgGatewayServer{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "t", UID: "uid-a", Generation: 7,
			Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "peer"},
		},
		Spec: networkingv1beta1.WgGatewayServerSpec{
			Service: networkingv1beta1.ServiceTemplate{Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 51840}},
			}},
			Deployment: networkingv1beta1.DeploymentTemplate{Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{networkingv1beta1.LabelGatewayName: "a"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{networkingv1beta1.LabelActive: "true"}},
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Name: "gateway"}},
						Volumes:    []corev1.Volume{{Name: "run"}, {Name: keysVolume}},
					},
				},
			}},
		},
	}
	g := serverKind.view(s)
	g.kind = &serverKind
	return Facts{Gateway: g, Options: Options{LiqoNamespace: "liqo"}, Account: account("uid-account")}
}

func account(uid types.UID) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "t", UID: uid}}
}

func clientFacts() Facts {
	c := &networkingv1beta1.WgGatewayClient{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "t", UID: "uid-a", Generation: 7,
			Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "peer"}},
		Spec: networkingv1beta1.WgGatewayClientSpec{Deployment: *serverFacts().Gateway.deployment},
	}
	g := clientKind.view(c)
	g.kind = &clientKind
	return Facts{Gateway: g, Options: Options{LiqoNamespace: "liqo"}, Account: account("uid-account")}
}

// found returns the object of a type in a plan, nil if there is none.
func found[T any, P object[T]](objects []client.Object, name string) P {
	for _, o := range objects {
		if x, ok := o.(P); ok && o.GetName() == name {
			return x
		}
	}
	return nil
}

// brief is a condition as type=status reason.
func brief(p Plan, t networkingv1beta1.ConditionType) string {
	c := meta.FindStatusCondition(p.Conditions, string(t))
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func message(p Plan, t networkingv1beta1.ConditionType) string {
	if c := meta.FindStatusCondition(p.Conditions, string(t)); c != nil {
		return c.Message
	}
	return ""
}

func TestBuildMakesEverythingOfAGateway(t *testing.T) {
	list := func(p Plan) (names []string) {
		for _, o := range p.Objects {
			names = append(names, strings.TrimSuffix(kindOf(o)+" "+o.GetNamespace()+"/"+o.GetName(), "/"))
		}
		return names
	}
	want := []string{
		"ServiceAccount t/a", "Role t/gw-a", "RoleBinding t/gw-a", "RoleBinding liqo/liqo-gateway-t-a", "ClusterRoleBinding /liqo-gateway-t-a",
		"Connection t/gw-a", "Service t/gw-a", "Deployment t/gw-a",
	}
	f := serverFacts()
	p := Build(f)
	if diff := cmp.Diff(want, list(p)); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
	for _, o := range p.Objects {
		if o.GetLabels()[networkingv1beta1.LabelManaged] != "true" || o.GetLabels()[networkingv1beta1.LabelRemoteClusterID] != "peer" {
			t.Errorf("%s has labels %v", o.GetName(), o.GetLabels())
		}
		outside := o.GetNamespace() != "t"
		if owned := len(o.GetOwnerReferences()) == 1; owned == outside {
			t.Errorf("%s %s: owners %v", kindOf(o), o.GetName(), o.GetOwnerReferences())
		}
		if outside && (o.GetLabels()[networkingv1beta1.LabelGatewayName] != "a" || o.GetLabels()[networkingv1beta1.LabelGatewayNamespace] != "t") {
			t.Errorf("%s does not lead back: %v", o.GetName(), o.GetLabels())
		}
	}
	for _, c := range p.Conditions {
		if c.ObservedGeneration != 7 {
			t.Errorf("condition %s observes generation %d", c.Type, c.ObservedGeneration)
		}
	}

	want = []string{
		"ServiceAccount t/a", "Role t/gw-a", "RoleBinding t/gw-a", "RoleBinding liqo/liqo-gateway-t-a", "ClusterRoleBinding /liqo-gateway-t-a",
		"Connection t/gw-a", "Deployment t/gw-a",
	}
	if diff := cmp.Diff(want, list(Build(clientFacts()))); diff != "" {
		t.Errorf("client (-want +got):\n%s", diff)
	}
}

func TestBuildLeavesTheNameToTheOlderGateway(t *testing.T) {
	f := serverFacts()
	f.Rival = "WgGatewayClient"
	p := Build(f)
	if len(p.Objects)+len(p.Delete) > 0 {
		t.Errorf("touches objects of the other: %v %v", p.Objects, p.Delete)
	}
	if got := brief(p, networkingv1beta1.ConditionDeployed); got != "False DuplicateGateway" {
		t.Errorf("Deployed is %q", got)
	}
}

func TestOwnersOfWhatOutlivesARendering(t *testing.T) {
	f := serverFacts()
	if got := f.Gateway.family(); got.Kind != "WgGatewayServer" || got.UID != "uid-a" {
		t.Errorf("written by hand: %v", got)
	}
	f.Gateway.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "networking.liqo.io/v1beta1", Kind: "GatewayServer", Name: "a", UID: "uid-gs", Controller: new(true)}})
	if got := f.Gateway.family(); got.Kind != "GatewayServer" || got.UID != "uid-gs" || got.BlockOwnerDeletion != nil {
		t.Errorf("rendered: %v", got)
	}
	c := found[networkingv1beta1.Connection](Build(f).Objects, "gw-a")
	want := networkingv1beta1.ConnectionSpec{Type: "Server", GatewayRef: corev1.ObjectReference{
		APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServer", Name: "a", Namespace: "t", UID: "uid-a"}}
	if diff := cmp.Diff(want, c.Spec); diff != "" {
		t.Errorf("Connection (-want +got):\n%s", diff)
	}
}

func TestBuildBeginsTheConnectionOnce(t *testing.T) {
	for value, want := range map[networkingv1beta1.ConnectionValue]bool{"": true, "Connecting": false, "Connected": false, "Error": false, "other": false} {
		f := serverFacts()
		f.Connection = &networkingv1beta1.Connection{Status: networkingv1beta1.ConnectionStatus{Value: value}}
		if got := Build(f).BeginConnection; got != want {
			t.Errorf("status %q: write %v", value, got)
		}
	}
}

func TestRecheckIsTheSoonest(t *testing.T) {
	var p Plan
	for _, d := range []time.Duration{time.Minute, time.Second, time.Hour} {
		p.recheck(d)
	}
	if p.Recheck != time.Second {
		t.Errorf("got %v", p.Recheck)
	}
}
