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
	if tenant.Spec.AuthzPolicy == authv1beta1.KeysExchange {
		var err error
		if public, err = credentials.ParsePublicKey(tenant.Spec.PublicKey); err != nil {
			return denied(authv1beta1.ReasonTenantMissing, "Tenant %s: publicKey: %v", tenant.Name, err)
		}
	}
	if err := credentials.JudgeRequest(s.Spec.CSR, credentials.SliceSubject(s.Name, consumer), public); err != nil {
		return denied(authv1beta1.ReasonRequestInvalid, "csr: %v", err)
	}
	return verdict{status: authv1beta1.SliceAccepted}
}

func quote(id *authv1beta1.ClusterID) string {
	if id == nil {
		return "missing"
	}
	return fmt.Sprintf("%q", cut(string(*id)))
}

// judgeResources decides what a copy gets. decided tells that another controller decides on its class.
func judgeResources(s *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant, defaultClass bool) (v verdict, granted corev1.ResourceList, others bool) {
	cordonedTenant := tenant.Spec.TenantCondition == authv1beta1.TenantCordoned
	switch {
	case tenant.Spec.TenantCondition == authv1beta1.TenantDrained:
		return denied(authv1beta1.ReasonTenantDrained, "the provider has drained cluster %s", tenant.Spec.ClusterID), nil, false
	case (cordonedTenant || s.Cordoned()) && accepted(s):
		return *resourcesOf(s), s.Status.Resources, false // as granted before
	case cordonedTenant:
		return denied(authv1beta1.ReasonTenantCordoned, "the provider has cordoned cluster %s: it gets no more than it has", tenant.Spec.ClusterID), nil, false
	case s.Cordoned():
		return denied(authv1beta1.ReasonSliceCordoned, "the provider has cordoned this slice: it gets no more than it has"), nil, false
	}
	if s.Spec.Class != "" && s.Spec.Class != authv1beta1.SliceClassDefault {
		return verdict{}, nil, true
	}
	if !defaultClass {
		return denied(authv1beta1.ReasonDefaultClassDisabled, "the provider grants nothing by class %s: ask for another class", authv1beta1.SliceClassDefault), nil, false
	}
	granted = defaults()
	if len(s.Spec.Resources) > maxResources {
		return denied(authv1beta1.ReasonResourcesInvalid, "%d kinds of resources are asked for; at most %d are granted", len(s.Spec.Resources), maxResources), nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(s.Spec.Resources)) {
		q := s.Spec.Resources[name]
		if why := validation.IsQualifiedName(string(name)); len(why) > 0 {
			return denied(authv1beta1.ReasonResourcesInvalid, "resource %q: %s", cut(string(name)), strings.Join(why, "; ")), nil, false
		}
		if q.Sign() < 0 {
			return denied(authv1beta1.ReasonResourcesInvalid, "resource %s is %s: less than nothing cannot be granted", name, q.String()), nil, false
		}
		granted[name] = q
	}
	return verdict{authv1beta1.SliceAccepted, authv1beta1.ReasonSliceResourcesAccepted, "granted as asked for"}, granted, false
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

// cut shortens what is quoted of another party's text.
func cut(s string) string { return s[:min(len(s), 80)] }
