package virtualkubelet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/reflection"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name}
}

// there waits until an object of the namespace at milan is as check wants it.
func (s *scene) there(o client.Object, name string, check func() error) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("%T %s at milan", o, name), func(ctx context.Context) error {
		if err := s.milan.Get(ctx, "shop-rome", name, o); err != nil {
			return err
		}
		if l := o.GetLabels(); l["offloading.liqo.io/origin"] != "rome" || l["offloading.liqo.io/destination"] != "milan" {
			return fmt.Errorf("labels %v", l)
		}
		return check()
	})
}

func TestObjects(t *testing.T) {
	s := newScene(t)
	settings := &corev1.ConfigMap{ObjectMeta: named("settings"), Data: map[string]string{"a": "1", "b": "2"}}
	key := &corev1.Secret{ObjectMeta: named("key"), Data: map[string][]byte{"key": []byte("x")}, Type: corev1.SecretTypeOpaque}
	web := &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	own := &corev1.Secret{ObjectMeta: named("own"), Data: map[string][]byte{"key": []byte("x")}}
	own.Annotations = map[string]string{"liqo.io/skip-reflection": "true"}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web-token", Labels: map[string]string{
		"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan", "offloading.liqo.io/service-account-name": "web",
	}}}
	taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "taken"}, Data: map[string]string{"a": "1"}}
	s.milan.Create(t, token)
	s.milan.Create(t, taken)
	ca := &corev1.ConfigMap{ObjectMeta: named("kube-root-ca.crt"), Data: map[string]string{"ca.crt": "x"}} // which no controller makes here
	for _, o := range []client.Object{settings, key, web, own, ca, &corev1.ConfigMap{ObjectMeta: named("taken"), Data: map[string]string{"a": "1"}}} {
		s.rome.Create(t, o)
	}
	copied, copiedKey, copiedWeb := new(corev1.ConfigMap), new(corev1.Secret), new(corev1.Service)
	s.there(copied, "settings", func() error { return nil })
	s.there(copiedKey, "key", func() error {
		if string(copiedKey.Data["key"]) != "x" {
			return errors.New("without its data")
		}
		return nil
	})
	s.there(copiedWeb, "web", func() error {
		if copiedWeb.Spec.Selector["app"] != "web" || copiedWeb.Spec.Ports[0].Port != 80 {
			return fmt.Errorf("%+v", copiedWeb.Spec)
		}
		return nil
	})
	s.there(new(corev1.ConfigMap), "kube-root-ca.crt.rome", func() error { return nil })
	s.warned(&corev1.ConfigMap{ObjectMeta: named("taken")}, "FailedReflection", "was not reflected from here")

	// What changes here changes there: an entry that goes as well.
	controlplanetest.Edit(t, s.rome, settings, func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": "3"} })
	s.there(copied, "settings", func() error {
		if len(copied.Data) != 1 || copied.Data["a"] != "3" {
			return fmt.Errorf("%v", copied.Data)
		}
		return nil
	})
	// What is deleted there is made again. What is not to be reflected any more goes.
	s.milan.Delete(t, copied)
	s.gone(s.milan, copied)
	s.there(copied, "settings", func() error { return nil })
	controlplanetest.Edit(t, s.rome, key, func(m *corev1.Secret) { m.Annotations = map[string]string{"liqo.io/skip-reflection": "true"} })
	s.gone(s.milan, copiedKey)

	// One that is immutable, deleted and made anew; one that is deleted, while the process is away.
	s.stop()
	s.rome.Delete(t, web)
	s.rome.Delete(t, settings)
	again := &corev1.ConfigMap{ObjectMeta: named("settings"), Data: map[string]string{"a": "4"}, Immutable: new(true)}
	s.rome.Create(t, again)
	s.start()
	s.gone(s.milan, copiedWeb)
	immutable := func(value string) func() error {
		return func() error {
			if copied.Data["a"] != value || copied.Immutable == nil {
				return fmt.Errorf("%v", copied.Data)
			}
			return nil
		}
	}
	s.there(copied, "settings", immutable("4"))
	s.rome.Delete(t, again)
	again = &corev1.ConfigMap{ObjectMeta: named("settings"), Data: map[string]string{"a": "5"}, Immutable: new(true)}
	s.rome.Create(t, again)
	s.there(copied, "settings", immutable("5"))

	// A start with everything in its place writes nothing, and what is another's stays as it is.
	s.stop()
	s.start()
	late := &corev1.ConfigMap{ObjectMeta: named("late")}
	s.rome.Create(t, late)
	s.there(new(corev1.ConfigMap), "late", func() error { return nil })
	for _, o := range []client.Object{copied, token, taken} {
		version := o.GetResourceVersion()
		if err := s.milan.Get(t.Context(), "shop-rome", o.GetName(), o); err != nil || o.GetResourceVersion() != version {
			t.Errorf("%s was touched: %v", o.GetName(), err)
		}
	}
	if err := s.milan.Get(t.Context(), "shop-rome", "own", new(corev1.Secret)); err == nil {
		t.Error("a Secret that is to stay here is reflected")
	}
}

// An Ingress follows the classes that the provider offers, and a kind of which only what is annotated is reflected.
func TestIngress(t *testing.T) {
	s := newScene(t)
	web := &networkingv1.Ingress{ObjectMeta: named("web"), Spec: networkingv1.IngressSpec{
		IngressClassName: new("nginx"), DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}}
	s.rome.Create(t, web)
	o := new(networkingv1.Ingress)
	class := func(want string) func() error {
		return func() error {
			got := ""
			if o.Spec.IngressClassName != nil {
				got = *o.Spec.IngressClassName
			}
			if got != want || o.Spec.DefaultBackend == nil || o.Spec.DefaultBackend.Service.Name != "web" {
				return fmt.Errorf("class %q, backend %+v", got, o.Spec.DefaultBackend)
			}
			return nil
		}
	}
	s.there(o, "web", class(""))
	controlplanetest.Edit(t, s.rome, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}, func(v *offloadingv1beta1.VirtualNode) {
		v.Spec.IngressClasses = []offloadingv1beta1.IngressClass{{IngressClassName: "haproxy", Default: true}}
	})
	s.there(o, "web", class("haproxy"))

	s.stop()
	s.policies = map[string]reflection.Policy{"ingresses": reflection.AllowList, "configmaps": reflection.AllowList}
	s.start()
	s.gone(s.milan, o)
	ca := &corev1.ConfigMap{ObjectMeta: named("kube-root-ca.crt"), Data: map[string]string{"ca.crt": "x"}}
	s.rome.Create(t, ca)
	s.there(new(corev1.ConfigMap), "kube-root-ca.crt.rome", func() error { return nil }) // of which no user decides
	controlplanetest.Edit(t, s.rome, web, func(i *networkingv1.Ingress) { i.Annotations = map[string]string{"liqo.io/allow-reflection": "true"} })
	s.there(o, "web", class("haproxy"))
	s.rome.Delete(t, web)
	s.gone(s.milan, o)
}

func TestEndpointSlices(t *testing.T) {
	s := newScene(t)
	s.rome.Create(t, &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	slice := &discoveryv1.EndpointSlice{ObjectMeta: named("web-1"), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}}}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	slice.Endpoints = []discoveryv1.Endpoint{
		{Addresses: []string{"10.243.1.1"}, NodeName: new("worker")}, {Addresses: []string{"10.71.1.1"}, NodeName: new("milan")}, {Addresses: []string{"192.0.2.1"}},
	}
	s.rome.Create(t, slice)
	o := new(offloadingv1beta1.ShadowEndpointSlice)
	addresses := func(want ...string) func() error {
		return func() error {
			var got []string
			for _, e := range o.Spec.Template.Endpoints {
				got = append(got, e.Addresses...)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || o.Labels[discoveryv1.LabelServiceName] != "web" || *o.Spec.Template.Ports[0].Port != 8080 {
				return fmt.Errorf("%v, %v", got, o.Labels)
			}
			return nil
		}
	}
	s.there(o, "web-1", addresses("10.243.1.1"))
	controlplanetest.Edit(t, s.rome, slice, func(e *discoveryv1.EndpointSlice) {
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.243.1.2"}})
	})
	s.there(o, "web-1", addresses("10.243.1.1", "10.243.1.2"))
	controlplanetest.Edit(t, s.rome, &corev1.Service{ObjectMeta: named("web")}, func(o *corev1.Service) { o.Annotations = map[string]string{"liqo.io/skip-reflection": "true"} })
	s.gone(s.milan, o)
}
