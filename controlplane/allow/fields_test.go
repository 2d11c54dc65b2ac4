package allow_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/controlplane/allow"
)

// TestService sets each field of a Service that this version of Kubernetes knows.
func TestService(t *testing.T) {
	// What may not be set, and why, is said at the list.
	refused := map[string]bool{"externalIPs": true}
	kind := reflect.TypeFor[corev1.ServiceSpec]()
	seen := 0
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		spec := reflect.New(kind)
		set(spec.Elem().Field(i))
		err := allow.Service(spec.Interface().(*corev1.ServiceSpec), "spec.service.spec")
		if (err != nil) != refused[name] {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "spec.service.spec."+name+" ") {
			t.Errorf("%s: the message does not name it: %v", name, err)
		}
		if refused[name] {
			seen++
		}
	}
	if err := allow.Service(&corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "x"}, "spec"); err == nil {
		t.Error("a Service that stands for any name")
	}
	if seen != len(refused) {
		t.Errorf("%d of %d fields exist", seen, len(refused))
	}
}

// set gives a field a value that is not its zero one.
func set(v reflect.Value) {
	if !v.CanSet() || v.Type() == reflect.TypeFor[resource.Quantity]() || v.Type() == reflect.TypeFor[metav1.FieldsV1]() {
		return // of a time; zero is an amount; these are JSON
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Uint32:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		set(key)
		set(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			set(v.Field(i))
		}
	}
}

func TestServiceMonitor(t *testing.T) {
	for _, test := range []struct {
		name, spec, refused string
	}{
		{"as templates have it", `{"selector":{"matchLabels":{"a":"b"}},"endpoints":[{"port":"m","path":"/metrics","interval":"30s"}]}`, ""},
		{"its own namespace", `{"namespaceSelector":{"matchNames":["t"]},"endpoints":[{"port":"m"}]}`, ""},
		{"metrics that are dropped", `{"endpoints":[{"port":"m","metricRelabelings":[{"action":"drop","regex":"go_.*"}]}]}`, ""},
		{"the token of Prometheus", `{"endpoints":[{"port":"m"},{"bearerTokenFile":"/var/run/secrets/kubernetes.io/serviceaccount/token"}]}`, "spec.endpoints[1].bearerTokenFile"},
		{"a Secret's token", `{"endpoints":[{"bearerTokenSecret":{"name":"s","key":"k"}}]}`, "spec.endpoints[0].bearerTokenSecret"},
		{"authorization", `{"endpoints":[{"authorization":{}}]}`, "spec.endpoints[0].authorization"},
		{"files for TLS", `{"endpoints":[{"tlsConfig":{"certFile":"/etc/x"}}]}`, "spec.endpoints[0].tlsConfig"},
		{"a password", `{"endpoints":[{"basicAuth":{}}]}`, "spec.endpoints[0].basicAuth"},
		{"OAuth", `{"endpoints":[{"oauth2":{}}]}`, "spec.endpoints[0].oauth2"},
		{"a proxy", `{"endpoints":[{"proxyUrl":"http://x"}]}`, "spec.endpoints[0].proxyUrl"},
		{"another address", `{"endpoints":[{"relabelings":[{"targetLabel":"__address__","replacement":"10.0.0.1:80"}]}]}`, "spec.endpoints[0].relabelings"},
		{"labels of others", `{"endpoints":[{"honorLabels":true}]}`, "spec.endpoints[0].honorLabels"},
		{"parameters", `{"endpoints":[{"params":{"target":["10.0.0.1"]}}]}`, "spec.endpoints[0].params"},
		{"every namespace", `{"namespaceSelector":{"any":true}}`, "spec.namespaceSelector.any"},
		{"another namespace", `{"namespaceSelector":{"matchNames":["t","kube-system"]}}`, "spec.namespaceSelector.matchNames"},
		{"names that are no list", `{"namespaceSelector":{"matchNames":{"t":"t"}}}`, "spec.namespaceSelector.matchNames"},
		{"what nobody knows yet", `{"newField":1}`, "spec.newField"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var spec map[string]any
			if err := json.Unmarshal([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			err := allow.ServiceMonitor(spec, "t", "spec")
			if (err == nil) != (test.refused == "") || err != nil && !strings.HasPrefix(err.Error(), test.refused) {
				t.Errorf("%v, want %q", err, test.refused)
			}
		})
	}
}
