package release

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sluice-net/sluice/admin/access"
)

// oldestKubernetes is the first version with what the schemas and the policies
// use.
const oldestKubernetes = "1.31.0"

// preflight finds what is in the way of an installation, before anything is
// changed. What it returns first are warnings.
func preflight(f Facts, liqoNamespace, newVersion string, crdVersions map[string][]string) (warnings []string, err error) {
	var errs []error
	if v, err := version.ParseGeneric(f.KubernetesVersion); err != nil || v.LessThan(version.MustParseGeneric(oldestKubernetes)) {
		errs = append(errs, fmt.Errorf("the cluster's Kubernetes %s is older than %s, and does not know what the schemas use: upgrade the cluster first", f.KubernetesVersion, oldestKubernetes))
	}
	i := f.Installed
	if len(i.Liqo) > 0 {
		errs = append(errs, fmt.Errorf("this cluster runs Liqo itself, and both would work on the same objects: uninstall it with its own liqoctl first (%s)", strings.Join(i.Liqo, ", ")))
	} else if len(i.LiqoKinds) > 0 {
		warnings = append(warnings, fmt.Sprintf("Liqo was here and has left its kinds (%s, ...): they are not touched", i.LiqoKinds[0]))
	}
	if i.Elsewhere != "" {
		errs = append(errs, fmt.Errorf("there is an installation in the namespace %s already, and a cluster can have one only: name it with --liqo-namespace %s, or uninstall it first", i.Elsewhere, i.Elsewhere))
	}
	for _, crd := range i.CRDs {
		if err := crd.check(newVersion, crdVersions[crd.Name]); err != nil {
			errs = append(errs, err)
		}
	}
	if strings.HasSuffix(liqoNamespace, fabricSuffix) {
		errs = append(errs, fmt.Errorf("the namespace %s is called like that of an installation's node agents: choose another one with --liqo-namespace", liqoNamespace))
	}
	return warnings, errors.Join(errs...)
}

// check tells why a CRD cannot be replaced by ours, which serves versions.
func (d InstalledCRD) check(newVersion string, versions []string) error {
	if d.Terminating {
		return fmt.Errorf("CRD %s is being deleted: wait until it is gone", d.Name)
	}
	for _, s := range d.Stored {
		if len(versions) > 0 && !slices.Contains(versions, s) {
			return fmt.Errorf("CRD %s has objects of version %s, which this liqoctl does not know: get a newer liqoctl", d.Name, s)
		}
	}
	have, err := version.ParseSemantic(d.Version)
	if err != nil {
		return nil // not known: nothing to compare
	}
	if mine, err := version.ParseSemantic(newVersion); err == nil && mine.LessThan(have) {
		return fmt.Errorf("CRD %s comes from %s, and this liqoctl is %s, which is older: get liqoctl %s or newer", d.Name, d.Version, newVersion, d.Version)
	}
	return nil
}

// rights are what an installation needs. Who has them may give the controllers
// theirs, too.
func rights(namespace string) (ps []access.Permission) {
	add := func(group, namespace string, resources ...string) {
		for _, r := range resources {
			for _, verb := range []string{"create", "patch", "delete"} {
				ps = append(ps, access.Permission{Verb: verb, Group: group, Resource: r, Namespace: namespace})
			}
		}
	}
	add("apiextensions.k8s.io", "", "customresourcedefinitions")
	add("", "", "namespaces")
	add("rbac.authorization.k8s.io", "", "clusterroles", "clusterrolebindings")
	add("admissionregistration.k8s.io", "", "validatingadmissionpolicies", "validatingadmissionpolicybindings")
	add("", namespace, "secrets", "configmaps", "serviceaccounts", "services")
	add("apps", namespace, "deployments")
	add("apps", namespace+fabricSuffix, "daemonsets")
	add("rbac.authorization.k8s.io", namespace, "roles", "rolebindings")
	add("networking.k8s.io", namespace, "networkpolicies")
	add("policy", namespace, "poddisruptionbudgets")
	add("networking.liqo.io", namespace, "wggatewayservertemplates", "wggatewayclienttemplates")
	return ps
}

// fabricSuffix ends the name of the namespace of the node agents.
const fabricSuffix = "-fabric"
