package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

// prefixFlag takes one prefix.
type prefixFlag struct{ to *netip.Prefix }

// Set implements pflag.Value.
func (f prefixFlag) Set(s string) (err error) {
	*f.to, err = parsePrefix(s)
	return err
}

// String implements pflag.Value.
func (f prefixFlag) String() string { return f.to.String() }

// Type implements pflag.Value.
func (f prefixFlag) Type() string { return "CIDR" }

// prefixesFlag takes several prefixes, with commas or by repetition. They
// replace the default.
type prefixesFlag struct {
	to  *[]netip.Prefix
	set bool
}

// Set implements pflag.Value.
func (f *prefixesFlag) Set(s string) error {
	if !f.set {
		*f.to, f.set = nil, true
	}
	for text := range strings.SplitSeq(s, ",") {
		p, err := parsePrefix(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		*f.to = append(*f.to, p)
	}
	return nil
}

// String implements pflag.Value.
func (f *prefixesFlag) String() string { return text.Join(*f.to, ",") }

// Type implements pflag.Value.
func (f *prefixesFlag) Type() string { return "CIDRs" }

// quotaFlag takes numbers of objects by resource, with commas or by repetition. They replace the default.
type quotaFlag struct {
	to  *corev1.ResourceList
	set bool
}

// defaultQuota is more than any namespace of another cluster needs. Node ports and load balancers are few, or cost money;
// a volume is of no use to its pods.
func defaultQuota() corev1.ResourceList {
	q := corev1.ResourceList{}
	for name, number := range map[corev1.ResourceName]int64{
		"configmaps": 1000, "secrets": 5000, "services": 1000, "services.loadbalancers": 20, "services.nodeports": 100, "persistentvolumeclaims": 0,
		"count/ingresses.networking.k8s.io": 1000, "count/shadowpods.offloading.liqo.io": 5000, "count/shadowendpointslices.offloading.liqo.io": 5000,
	} {
		q[name] = *resource.NewQuantity(number, resource.DecimalSI)
	}
	return q
}

// volumes tells whether consumers may have PersistentVolumeClaims.
func volumes(quota corev1.ResourceList) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, "count/persistentvolumeclaims"} {
		if q, limited := quota[name]; limited && q.IsZero() {
			return false
		}
	}
	return true
}

// Set implements pflag.Value.
func (f *quotaFlag) Set(s string) error {
	if !f.set {
		*f.to, f.set = corev1.ResourceList{}, true
	}
	if s == "" {
		return nil
	}
	for text := range strings.SplitSeq(s, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(text), "=")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || len(validation.IsQualifiedName(name)) > 0 {
			return fmt.Errorf("%q is not a resource and its number, such as configmaps=100 or count/ingresses.networking.k8s.io=10", text)
		}
		(*f.to)[corev1.ResourceName(name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return nil
}

// String implements pflag.Value.
func (f *quotaFlag) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(*f.to)) {
		q := (*f.to)[name]
		texts = append(texts, fmt.Sprintf("%s=%d", name, q.Value()))
	}
	return strings.Join(texts, ",")
}

// Type implements pflag.Value.
func (f *quotaFlag) Type() string { return "quota" }

// parsePrefix reads a prefix that a cluster can use.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56", s)
	}
	return p, cidr.Routable(p)
}

// classesFlag takes names of classes, with commas or by repetition. ;default behind one of them marks the default.
type classesFlag struct{ to *[]resourceslice.Class }

// Set implements pflag.Value.
func (f *classesFlag) Set(s string) error {
	for text := range strings.SplitSeq(s, ",") {
		name, mark, marked := strings.Cut(strings.TrimSpace(text), ";")
		if len(validation.IsQualifiedName(name)) > 0 || marked && mark != "default" {
			return fmt.Errorf("%q is not the name of a class, such as public, or public;default for the default one", text)
		}
		if marked && slices.ContainsFunc(*f.to, func(c resourceslice.Class) bool { return c.Default }) {
			return fmt.Errorf("%q is a second default: there can be one", text)
		}
		*f.to = append(*f.to, resourceslice.Class{Name: name, Default: marked})
	}
	return nil
}

// String implements pflag.Value.
func (f *classesFlag) String() string {
	var texts []string
	for _, c := range *f.to {
		text := c.Name
		if c.Default {
			text += ";default"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ",")
}

// Type implements pflag.Value.
func (f *classesFlag) Type() string { return "NAMES" }
