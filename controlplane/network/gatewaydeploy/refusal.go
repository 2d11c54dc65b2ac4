package gatewaydeploy

import (
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// refusal is an object that the API server does not take.
type refusal struct {
	object  client.Object
	message string
}

// text is what the API server said.
func (r refusal) text() string { return kindOf(r.object) + " " + r.object.GetName() + ": " + r.message }

func kindOf(o client.Object) string {
	if k := o.GetObjectKind().GroupVersionKind().Kind; k != "" {
		return k
	}
	return reflect.TypeOf(o).Elem().Name()
}

// patience is how long to wait before refused objects are tried again. The status says
// whether it is the first time.
func (g *gateway) patience(refusals []refusal) time.Duration {
	c := meta.FindStatusCondition(*g.conditions, string(networkingv1beta1.ConditionDeployed))
	if c != nil && c.Reason == string(networkingv1beta1.ReasonObjectRefused) && strings.HasPrefix(c.Message, join(refusals)) {
		return recheckRefused
	}
	return recheckRefusedFirst
}

func join(refusals []refusal) string {
	texts := make([]string, len(refusals))
	for i, r := range refusals {
		texts[i] = r.text()
	}
	return strings.Join(texts, "; ")
}
