package v1beta1

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/text"
)

const (
	// maxAffinitySeconds is a day, the most that a Service takes.
	maxAffinitySeconds = 86400
	// maxAddressText is the longest text of an IPv6 address.
	maxAddressText = 45
	// maxDistribution is the longest name of a traffic distribution, of which there may be more in times to come.
	maxDistribution = 63
)

// Endpoints is how many endpoints a description has, in all of its slices.
func (d *ServiceDescription) Endpoints() (n int) {
	for i := range d.Slices {
		n += len(d.Slices[i].Endpoints)
	}
	return n
}

// Check judges what another cluster says of a Service: what the schema says, the bounds of this package, and what an API
// server asks of a Service and of its EndpointSlices. An address may be any text of its length: what it leads to is judged
// elsewhere.
func (d *ServiceDescription) Check() error {
	switch {
	case len(validation.IsDNS1123Label(d.Namespace)) > 0:
		return fmt.Errorf("spec.namespace: %q is not the name of a namespace", text.Quoted(d.Namespace))
	case len(validation.IsDNS1123Label(d.Name)) > 0:
		return fmt.Errorf("spec.name: %q is not the name of a Service", text.Quoted(d.Name))
	case d.Type != ServiceClusterSetIP && d.Type != ServiceHeadless:
		return fmt.Errorf("spec.type: %q is not ClusterSetIP or Headless", text.Quoted(string(d.Type)))
	case d.SessionAffinity != "" && d.SessionAffinity != corev1.ServiceAffinityNone && d.SessionAffinity != corev1.ServiceAffinityClientIP:
		return fmt.Errorf("spec.sessionAffinity: %q is not None or ClientIP", text.Quoted(string(d.SessionAffinity)))
	case d.SessionAffinityTimeoutSeconds != nil && (*d.SessionAffinityTimeoutSeconds < 1 || *d.SessionAffinityTimeoutSeconds > maxAffinitySeconds):
		return fmt.Errorf("spec.sessionAffinityTimeoutSeconds: %d is not between 1 and %d", *d.SessionAffinityTimeoutSeconds, maxAffinitySeconds)
	case d.InternalTrafficPolicy != "" && d.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster && d.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal:
		return fmt.Errorf("spec.internalTrafficPolicy: %q is not Cluster or Local", text.Quoted(string(d.InternalTrafficPolicy)))
	case len(d.TrafficDistribution) > maxDistribution || strings.ContainsFunc(d.TrafficDistribution, notLetter):
		return fmt.Errorf("spec.trafficDistribution: %q is not the name of a distribution", text.Quoted(d.TrafficDistribution))
	case d.Type == ServiceClusterSetIP && len(d.Ports) == 0:
		return fmt.Errorf("spec.ports is empty: a Service with an address has ports")
	case len(d.Slices) > MaxServiceSlices:
		return fmt.Errorf("spec.slices has %d entries: %d are allowed", len(d.Slices), MaxServiceSlices)
	case d.Endpoints() > MaxServiceEndpoints:
		return fmt.Errorf("spec.slices has %d endpoints: %d are allowed", d.Endpoints(), MaxServiceEndpoints)
	}
	if err := checkServicePorts("spec.ports", d.Ports); err != nil {
		return err
	}
	if err := checkExported("spec.labels", d.Labels, CheckExportedLabel); err != nil {
		return err
	}
	if err := checkExported("spec.annotations", d.Annotations, CheckExportedAnnotation); err != nil {
		return err
	}
	numbers := map[ServicePort]bool{}
	for i, p := range d.Ports {
		key := ServicePort{Protocol: p.Protocol, Port: p.Port}
		if numbers[key] {
			return fmt.Errorf("spec.ports[%d]: another port is %s %d too", i, p.Protocol, p.Port)
		}
		numbers[key] = true
		if p.Name == "" && len(d.Ports) > 1 {
			return fmt.Errorf("spec.ports[%d].name is empty: of several ports each has a name", i)
		}
	}
	for i := range d.Slices {
		if err := d.Slices[i].check(fmt.Sprintf("spec.slices[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// checkExported judges labels or annotations; path is where they are.
func checkExported(path string, all map[string]string, check func(key, value string) error) error {
	if len(all) > MaxServiceLabels {
		return fmt.Errorf("%s has %d entries: %d are allowed", path, len(all), MaxServiceLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) { // the same error each time
		if err := check(key, all[key]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// CheckExportedLabel says why a label of a ServiceExport is not one for the ServiceImports of other clusters; nil: it is.
func CheckExportedLabel(key, value string) error {
	if err := checkExportedKey(key); err != nil {
		return err
	}
	if len(validation.IsValidLabelValue(value)) > 0 {
		return fmt.Errorf("%s: %q is not the value of a label", key, text.Quoted(value))
	}
	return nil
}

// CheckExportedAnnotation is CheckExportedLabel for an annotation.
func CheckExportedAnnotation(key, value string) error {
	if err := checkExportedKey(key); err != nil {
		return err
	}
	if len(value) > MaxServiceAnnotation {
		return fmt.Errorf("%s has %d bytes: %d are allowed", key, len(value), MaxServiceAnnotation)
	}
	return nil
}

// checkExportedKey refuses what has a meaning for Kubernetes or for this project: another cluster is not to say it of an
// object here.
func checkExportedKey(key string) error {
	if len(validation.IsQualifiedName(key)) > 0 {
		return fmt.Errorf("%q is not the key of a label or an annotation", text.Quoted(key))
	}
	domain, _, has := strings.Cut(key, "/")
	if !has || domain == "app.kubernetes.io" { // which says what an application is
		return nil
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io", "x-k8s.io", "liqo.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return fmt.Errorf("%s is reserved: keys of %s have a meaning in each cluster", key, reserved)
		}
	}
	return nil
}

func notLetter(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }

// check judges a slice; path is where it is.
func (s *ServiceSlice) check(path string) error {
	if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 {
		return fmt.Errorf("%s.addressType: %q is not IPv4 or IPv6", path, text.Quoted(string(s.AddressType)))
	}
	if s.Cluster != "" && len(validation.IsDNS1123Label(s.Cluster)) > 0 {
		return fmt.Errorf("%s.cluster: %q is not the ID of a cluster", path, text.Quoted(s.Cluster))
	}
	if err := checkServicePorts(path+".ports", s.Ports); err != nil {
		return err
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if n := len(e.Addresses); n == 0 || n > MaxServiceAddresses {
			return fmt.Errorf("%s.endpoints[%d].addresses has %d entries: 1 to %d are allowed", path, i, n, MaxServiceAddresses)
		}
		for _, a := range e.Addresses {
			if utf8.RuneCountInString(a) > maxAddressText {
				return fmt.Errorf("%s.endpoints[%d].addresses: %q is too long for an address", path, i, text.Quoted(a))
			}
		}
		if e.Hostname != nil && len(validation.IsDNS1123Label(*e.Hostname)) > 0 {
			return fmt.Errorf("%s.endpoints[%d].hostname: %q is not a host name", path, i, text.Quoted(*e.Hostname))
		}
	}
	return nil
}

// checkServicePorts judges ports as an API server does.
func checkServicePorts(path string, ports []ServicePort) error {
	if len(ports) > MaxServicePorts {
		return fmt.Errorf("%s has %d entries: %d are allowed", path, len(ports), MaxServicePorts)
	}
	names := map[string]bool{}
	for i, p := range ports {
		switch {
		case p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0:
			return fmt.Errorf("%s[%d].name: %q is not the name of a port", path, i, text.Quoted(p.Name))
		case names[p.Name]:
			return fmt.Errorf("%s[%d].name: another port has the name %q too", path, i, p.Name)
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP:
			return fmt.Errorf("%s[%d].protocol: there is no protocol %q", path, i, text.Quoted(string(p.Protocol)))
		case len(validation.IsValidPortNum(int(p.Port))) > 0:
			return fmt.Errorf("%s[%d].port: %d is not between 1 and 65535", path, i, p.Port)
		case p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0:
			return fmt.Errorf("%s[%d].appProtocol: %q is not the name of a protocol", path, i, text.Quoted(*p.AppProtocol))
		}
		names[p.Name] = true
	}
	return nil
}
