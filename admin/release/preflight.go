package release

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/api/text"
)

// oldestKubernetes is the first version with what the schemas and the policies
// use.
const oldestKubernetes = "1.31.0"

// preflight finds what prevents an installation, before anything is changed.
func preflight(f Facts, liqoNamespace, newVersion string, ours map[string]apiextensionsv1.CustomResourceDefinition) error {
	var errs []error
	if v, err := version.ParseGeneric(f.KubernetesVersion); err != nil || v.LessThan(version.MustParseGeneric(oldestKubernetes)) {
		errs = append(errs, fmt.Errorf("the cluster runs Kubernetes %s, which is older than %s and does not support features that the CRDs use: upgrade the cluster first", f.KubernetesVersion, oldestKubernetes))
	}
	i := f.Installed
	if len(i.Liqo) > 0 {
		errs = append(errs, fmt.Errorf("this cluster runs Liqo, and both would manage the same objects: to take over its network, hand its peerings to Sluice's gateway with 'liqoctl network adopt', then add --adopt here (docs/liqo.md); otherwise uninstall Liqo with its own liqoctl first (%s)", strings.Join(i.Liqo, ", ")))
	}
	if i.Elsewhere != "" {
		errs = append(errs, fmt.Errorf("there is already an installation in namespace %s, and a cluster can have only one: name it with --liqo-namespace %s, or uninstall it first", i.Elsewhere, i.Elsewhere))
	}
	for _, live := range i.CRDs {
		if mine, known := ours[live.Name]; known {
			errs = append(errs, replaceable(&live, &mine, newVersion))
		}
	}
	if strings.HasSuffix(liqoNamespace, access.FabricSuffix) {
		errs = append(errs, fmt.Errorf("the name of namespace %s is reserved for the node agents of an installation: choose another namespace with --liqo-namespace", liqoNamespace))
	}
	return errors.Join(errs...)
}

// replaceable tells why a cluster's CRD cannot be replaced by that of this
// program, which is of newVersion.
func replaceable(live, ours *apiextensionsv1.CustomResourceDefinition, newVersion string) error {
	if live.DeletionTimestamp != nil {
		return fmt.Errorf("CRD %s is being deleted: wait until it is gone", live.Name)
	}
	schemas := schemasOf(ours)
	for _, stored := range live.Status.StoredVersions {
		if schemas[stored] == nil {
			return fmt.Errorf("CRD %s has objects of version %s, which this liqoctl does not know: use a newer liqoctl", live.Name, stored)
		}
	}
	applied, marked := live.Annotations[AnnotationVersion]
	have, err := version.ParseSemantic(applied)
	mine, mineErr := version.ParseSemantic(newVersion)
	switch {
	case !marked: // it was applied by hand, so that is intended
		return nil
	case err == nil && mineErr == nil && mine.LessThan(have):
		return fmt.Errorf("CRD %s comes from %s, but this liqoctl is %s, which is older: use liqoctl %s or newer", live.Name, applied, newVersion, applied)
	case err == nil && mineErr == nil:
		return nil
	}
	// A build between releases has no version to compare: the newer one knows more.
	for name, schema := range schemasOf(live) {
		if unknown := unknownFields(schema, schemas[name], ""); len(unknown) > 0 {
			slices.Sort(unknown)
			return fmt.Errorf("CRD %s comes from %s and has fields that this liqoctl %s does not know (%s), which objects would lose: use a newer liqoctl; "+
				"if this is intended, first apply the CRDs of this version: kubectl apply --server-side --force-conflicts -f deploy/crds",
				live.Name, applied, newVersion, text.Few(unknown))
		}
	}
	return nil
}

// schemasOf returns the schema of each version.
func schemasOf(d *apiextensionsv1.CustomResourceDefinition) map[string]*apiextensionsv1.JSONSchemaProps {
	out := make(map[string]*apiextensionsv1.JSONSchemaProps, len(d.Spec.Versions))
	for _, v := range d.Spec.Versions {
		out[v.Name] = new(apiextensionsv1.JSONSchemaProps)
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			out[v.Name] = v.Schema.OpenAPIV3Schema
		}
	}
	return out
}

// unknownFields lists the fields of live, below path, that ours lacks. Where ours
// has no fields at all it takes any.
func unknownFields(live, ours *apiextensionsv1.JSONSchemaProps, path string) (unknown []string) {
	if live == nil || ours == nil {
		return nil
	}
	for name, field := range live.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if mine, ok := ours.Properties[name]; ok {
			unknown = append(unknown, unknownFields(&field, &mine, at)...)
		} else if len(ours.Properties) > 0 {
			unknown = append(unknown, at)
		}
	}
	if live.Items != nil && ours.Items != nil {
		unknown = append(unknown, unknownFields(live.Items.Schema, ours.Items.Schema, path+"[]")...)
	}
	if live.AdditionalProperties != nil && ours.AdditionalProperties != nil {
		unknown = append(unknown, unknownFields(live.AdditionalProperties.Schema, ours.AdditionalProperties.Schema, path+"{}")...)
	}
	return unknown
}

// rights are what an installation needs. They include the rights that it gives to the
// controllers.
func rights(namespace string) (ps []access.Permission) {
	add := func(group, namespace string, resources ...string) {
		for _, r := range resources {
			ps = append(ps, access.Permissions(group, r, namespace, "create", "patch", "delete")...)
		}
	}
	add("apiextensions.k8s.io", "", "customresourcedefinitions")
	add("", "", "namespaces")
	add("rbac.authorization.k8s.io", "", "clusterroles", "clusterrolebindings")
	add("admissionregistration.k8s.io", "", "validatingadmissionpolicies", "validatingadmissionpolicybindings")
	add("", namespace, "secrets", "configmaps", "serviceaccounts", "services")
	add("apps", namespace, "deployments")
	add("apps", namespace+access.FabricSuffix, "daemonsets")
	add("rbac.authorization.k8s.io", namespace, "roles", "rolebindings")
	add("networking.k8s.io", namespace, "networkpolicies")
	add("policy", namespace, "poddisruptionbudgets")
	add("networking.liqo.io", namespace, "wggatewayservertemplates", "wggatewayclienttemplates")
	return ps
}
