package resourceslice

import (
	"crypto"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// defaults are granted where nothing is asked for.
func defaults() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
	}
}

// maxResources bounds how many kinds of resources a slice may name.
const maxResources = 64

// verdict is a decision on one condition of a slice.
type verdict struct {
	status          authv1beta1.ResourceSliceConditionStatus
	reason, message string
}

func denied(reason, format string, args ...any) verdict {
	return verdict{authv1beta1.SliceDenied, reason, fmt.Sprintf(format, args...)}
}

// judgeAuthentication decides whether the consumer of a copy gets a certificate for it. own is the ID of this cluster,
// tenant the Tenant of the namespace, or nil.
func judgeAuthentication(s *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant, own string) verdict {
	if tenant == nil {
		return denied(authv1beta1.ReasonTenantMissing, "namespace %s has no Tenant that is ready: the provider's administrator must create one, or mend it", s.Namespace)
	}
	consumer := string(tenant.Spec.ClusterID)
	if id := s.Spec.ConsumerClusterID; id == nil || string(*id) != consumer {
		return denied(authv1beta1.ReasonConsumerInvalid, "consumerClusterID is %s; in this namespace it must be %s", quote(id), consumer)
	}
	if id := s.Spec.ProviderClusterID; id == nil || string(*id) != own {
		return denied(authv1beta1.ReasonConsumerInvalid, "providerClusterID is %s; this cluster is %s", quote(id), own)
	}
	var public crypto.PublicKey
	switch {
	case tenant.Spec.AuthzPolicy == authv1beta1.KeysExchange:
		var err error
		if public, err = credentials.ParsePublicKey(tenant.Spec.PublicKey); err != nil {
			return denied(authv1beta1.ReasonTenantMissing, "Tenant %s: publicKey: %v", tenant.Name, err)
		}
	case len(s.Spec.CSR) == 0: // it has credentials by other means
		return verdict{status: authv1beta1.SliceAccepted}
	}
	if err := credentials.JudgeRequest(s.Spec.CSR, credentials.SliceSubject(s.Name, consumer), public); err != nil {
		return denied(credentials.Reason(err), "csr: %v", err)
	}
	return verdict{status: authv1beta1.SliceAccepted}
}

func quote(id *authv1beta1.ClusterID) string {
	if id == nil {
		return "missing"
	}
	return fmt.Sprintf("%q", text.Quoted(string(*id)))
}

// judgeResources decides what a copy gets. others tells that another controller decides on its class.
//
//	tenant or slice                        class              granted
//	drained                                any                nothing
//	cordoned, with something granted       any                what it has
//	cordoned                               any                nothing
//	active, which asks for the same again  any                what it has: what was promised is kept
//	active, within the quota               default, or empty  what is asked for
//	active, within the quota               available          what is asked for, if the nodes have it left
//	active                                 another            as its controller says
//
// Where it says nothing of a resource that there are defaults for, it gets the default, or less if less is left.
func judgeResources(s *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant, defaultClass bool, l ledger) (v verdict, granted corev1.ResourceList, others bool) {
	cordonedTenant := tenant.Spec.TenantCondition == authv1beta1.TenantCordoned
	switch {
	case tenant.Spec.TenantCondition == authv1beta1.TenantDrained:
		return denied(authv1beta1.ReasonTenantDrained, "the provider has drained cluster %s", tenant.Spec.ClusterID), nil, false
	case (cordonedTenant || s.Cordoned()) && accepted(s):
		return *resourcesOf(s), s.Status.Resources, false // as granted before
	case cordonedTenant:
		return denied(authv1beta1.ReasonTenantCordoned, "the provider has cordoned cluster %s: no more resources are granted to it", tenant.Spec.ClusterID), nil, false
	case s.Cordoned():
		return denied(authv1beta1.ReasonSliceCordoned, "the provider has cordoned this slice: no more resources are granted for it"), nil, false
	}
	switch s.Spec.Class {
	case "", authv1beta1.SliceClassDefault:
		if !defaultClass {
			return denied(authv1beta1.ReasonDefaultClassDisabled, "the provider grants nothing by class %s: ask for another class", authv1beta1.SliceClassDefault), nil, false
		}
	case authv1beta1.SliceClassAvailable:
	default:
		return verdict{}, nil, true
	}
	if refusal := judgeAsked(s.Spec.Resources); refusal != nil {
		return *refusal, nil, false
	}
	if settled(s) {
		return *resourcesOf(s), s.Status.Resources, false
	}
	if l.wrong != "" {
		return denied(authv1beta1.ReasonQuotaInvalid, "the provider's administrator must mend %s", l.wrong), nil, false
	}
	granted = defaults()
	maps.Copy(granted, s.Spec.Resources)
	for _, name := range slices.Sorted(maps.Keys(granted)) {
		_, asked := s.Spec.Resources[name]
		left, why := l.left(name, string(tenant.Spec.ClusterID))
		if want := granted[name]; left == nil || want.Cmp(*left) <= 0 {
			continue
		} else if asked {
			return denied(why.reason, "%s of %s are asked for; %s", want.String(), name, why.message), nil, false
		}
		granted[name] = *left
	}
	return verdict{authv1beta1.SliceAccepted, authv1beta1.ReasonSliceResourcesAccepted, "granted as asked for"}, granted, false
}

// judgeAsked refuses what nobody can grant.
func judgeAsked(asked corev1.ResourceList) *verdict {
	refuse := func(format string, args ...any) *verdict {
		v := denied(authv1beta1.ReasonResourcesInvalid, format, args...)
		return &v
	}
	if len(asked) > maxResources {
		return refuse("%d kinds of resources are asked for; at most %d are granted", len(asked), maxResources)
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		q := asked[name]
		if why := validation.IsQualifiedName(string(name)); len(why) > 0 {
			return refuse("resource %q: %s", text.Quoted(string(name)), strings.Join(why, "; "))
		}
		if q.Sign() < 0 {
			return refuse("resource %s is %s: less than nothing cannot be granted", name, q.String())
		}
	}
	return nil
}

// settled tells whether a slice has what it asks for.
func settled(s *authv1beta1.ResourceSlice) bool {
	return accepted(s) && covers(s.Status.Resources, s.Spec.Resources)
}

// covers tells whether what is asked for is what was granted.
func covers(granted, asked corev1.ResourceList) bool {
	if len(granted) == 0 {
		return false
	}
	for name, q := range asked {
		if have, ok := granted[name]; !ok || have.Cmp(q) != 0 {
			return false
		}
	}
	for name := range granted { // of a resource that is not asked for any more it gets the default again
		if _, ok := asked[name]; !ok {
			if _, isDefault := defaults()[name]; !isDefault {
				return false
			}
		}
	}
	return true
}

// left is how much of a resource a slice can get, and what bounds it; nil: as much as it asks for.
func (l ledger) left(name corev1.ResourceName, consumer string) (*resource.Quantity, verdict) {
	var least *resource.Quantity
	var why verdict
	bound := func(left resource.Quantity, v verdict) {
		if left.Sign() < 0 {
			left = resource.Quantity{}
		}
		if least == nil || left.Cmp(*least) < 0 {
			least, why = &left, v
		}
	}
	if quota, limited := l.quota[name]; limited {
		left, taken := quota.DeepCopy(), l.taken[name]
		left.Sub(taken)
		bound(left, denied(authv1beta1.ReasonQuotaExceeded, "the quota of cluster %s is %s, of which its other slices have %s", consumer, quota.String(), taken.String()))
	}
	if c := l.free; c != nil {
		left, all, requested, granted := c.left(name), c.allocatable[name], c.requested[name], c.granted[name]
		bound(left, denied(authv1beta1.ReasonResourcesUnavailable, "the provider has %s left: its nodes have %s, of which slices have %s and other pods request %s",
			left.String(), all.String(), granted.String(), requested.String()))
	}
	return least, why
}

// parseQuota reads the annotation of a tenant namespace: cpu=8,memory=32Gi.
func parseQuota(annotation string) (corev1.ResourceList, error) {
	quota := corev1.ResourceList{}
	for pair := range strings.SplitSeq(annotation, ",") {
		name, amount, _ := strings.Cut(strings.TrimSpace(pair), "=")
		q, err := resource.ParseQuantity(amount)
		if err != nil || q.Sign() < 0 || len(validation.IsQualifiedName(name)) > 0 {
			return nil, fmt.Errorf("%q is not RESOURCE=AMOUNT, as in cpu=8,memory=32Gi", text.Quoted(pair))
		}
		quota[corev1.ResourceName(name)] = q
	}
	return quota, nil
}

func accepted(s *authv1beta1.ResourceSlice) bool {
	v := resourcesOf(s)
	return v != nil && v.status == authv1beta1.SliceAccepted
}

func resourcesOf(s *authv1beta1.ResourceSlice) *verdict {
	for _, c := range s.Status.Conditions {
		if c.Type == authv1beta1.SliceResources {
			return &verdict{c.Status, c.Reason, c.Message}
		}
	}
	return nil
}
