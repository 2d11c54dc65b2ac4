package wggateway

import (
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
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

func join(refusals []refusal) string {
	texts := make([]string, len(refusals))
	for i, r := range refusals {
		texts[i] = r.text()
	}
	return strings.Join(texts, "; ")
}
