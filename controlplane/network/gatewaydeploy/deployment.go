package gatewaydeploy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// electionFlag makes a gateway take part in the election even if it is alone.
const electionFlag = "--leader-election"

// AnnotationAccount is the UID of the service account, in the template of the pods. On a Deployment itself it says that
// its pods were there before ours, and work with this account.
const AnnotationAccount = "networking.liqo.io/service-account-uid"

// deployment adds the Deployment and says how it fares.
func (f *Facts) deployment(p *Plan) {
	ok, reason, message := f.progress()
	f.say(p, networkingv1beta1.ConditionDeployed, ok, reason, "%s", message)
	if f.Account == nil || f.accountDenied() {
		return // no pod would be admitted. Its event wakes the reconciler
	}
	g := f.Gateway
	d := &appsv1.Deployment{ObjectMeta: f.meta(childName(g.GetName()), g.self()), Spec: *g.deployment.Spec.DeepCopy()}
	d.Labels = labels.Merge(labels.Merge(g.deployment.Metadata.Labels, f.labels()), f.gatewayLabels())
	d.Annotations = maps.Clone(g.deployment.Metadata.Annotations)
	d.Spec.Strategy = fullStrategy(d.Spec.Strategy)

	t := &d.Spec.Template
	t.Labels = labels.Merge(t.Labels, f.podLabels())
	if f.elects() && f.marks() {
		delete(t.Labels, networkingv1beta1.LabelActive) // or every replica started with it
	}
	account := map[string]string{AnnotationAccount: string(f.Account.UID)}
	if f.othersPods() {
		d.Annotations = labels.Merge(d.Annotations, account)
	} else {
		t.Annotations = labels.Merge(t.Annotations, account)
	}
	t.Spec.ServiceAccountName, t.Spec.DeprecatedServiceAccount = g.accountName(), ""
	for i := range t.Spec.Volumes {
		if v := &t.Spec.Volumes[i]; v.Name == keysVolume {
			if v.Secret == nil {
				v.VolumeSource = corev1.VolumeSource{Secret: new(corev1.SecretVolumeSource)}
			}
			v.Secret.SecretName = g.secretName()
		}
	}
	p.Objects = append(p.Objects, d)
}

// othersPods tells whether the Deployment was made by Liqo, for the account that there is now. A mark in the template would
// replace a pod that works.
func (f *Facts) othersPods() bool {
	if f.Deployment == nil || f.Deployment.Spec.Template.Annotations[AnnotationAccount] != "" {
		return false
	}
	uid, seen := f.Deployment.Annotations[AnnotationAccount]
	_, applied := f.Deployment.Annotations[apply.AnnotationHash]
	return seen && uid == string(f.Account.UID) || !seen && !applied
}

// fullStrategy spells out what an API server would fill in. What it fills in belongs
// to nobody, and would stand in the way of another strategy later.
func fullStrategy(s appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return s
	}
	if s.RollingUpdate == nil {
		s.RollingUpdate = new(appsv1.RollingUpdateDeployment)
	}
	quarter := intstr.FromString("25%")
	s.RollingUpdate.MaxSurge = cmp.Or(s.RollingUpdate.MaxSurge, &quarter)
	s.RollingUpdate.MaxUnavailable = cmp.Or(s.RollingUpdate.MaxUnavailable, &quarter)
	return s
}

// progress says whether a pod is ready, and else why not, in the words of those who know.
func (f *Facts) progress() (ok bool, r networkingv1beta1.ConditionReason, message string) {
	name, d := childName(f.Gateway.GetName()), f.Deployment
	switch {
	case d == nil && f.Account == nil:
		return false, networkingv1beta1.ReasonDeploymentNotReady, "Deployment " + name + " waits for ServiceAccount " + f.Gateway.accountName()
	case d == nil:
		return false, networkingv1beta1.ReasonDeploymentNotReady, "Deployment " + name + " does not exist yet"
	case d.Status.ReadyReplicas > 0:
		return true, networkingv1beta1.ReasonDeploymentReady, "Deployment " + name + " has a ready pod"
	case f.replicas() == 0:
		return false, networkingv1beta1.ReasonDeploymentNotReady, "Deployment " + name + " has no replicas: set spec.deployment.spec.replicas to 1 or more"
	}
	// A pod that is refused says most, then a rollout that failed. That it is not
	// available is said below.
	for _, t := range []appsv1.DeploymentConditionType{appsv1.DeploymentReplicaFailure, appsv1.DeploymentProgressing} {
		for _, c := range d.Status.Conditions {
			bad := corev1.ConditionFalse
			if t == appsv1.DeploymentReplicaFailure {
				bad = corev1.ConditionTrue
			}
			if c.Type == t && c.Status == bad {
				return false, networkingv1beta1.ReasonDeploymentNotReady, "Deployment " + name + ": " + c.Message
			}
		}
	}
	return false, networkingv1beta1.ReasonDeploymentNotReady, "Deployment " + name + " has no ready pod yet"
}

// replicas is how many pods are wanted.
func (f *Facts) replicas() int32 {
	switch {
	case f.Gateway.deployment.Spec.Replicas != nil:
		return *f.Gateway.deployment.Spec.Replicas
	case f.Deployment != nil && f.Deployment.Spec.Replicas != nil: // somebody else scales it
		return *f.Deployment.Spec.Replicas
	}
	return 1
}

// elects tells whether the pods choose their leader by the Lease.
func (f *Facts) elects() bool {
	return f.replicas() > 1 || f.hasElectionFlag()
}

// hasElectionFlag tells whether the pods are started with the flag to choose their leader.
func (f *Facts) hasElectionFlag() bool {
	return slices.ContainsFunc(f.Gateway.deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool {
			flag, value, given := strings.Cut(arg, "=")
			return flag == electionFlag && (!given || value == "true")
		})
	})
}

// marks tells whether the mark of the active pod may be moved. If the Deployment
// selects its pods by it, taking it away would make the Deployment start another pod,
// for ever.
func (f *Facts) marks() bool {
	s := f.Gateway.deployment.Spec.Selector
	if s == nil {
		return true
	}
	_, fixed := s.MatchLabels[networkingv1beta1.LabelActive]
	return !fixed && !slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == networkingv1beta1.LabelActive
	})
}

func (f *Facts) leaseName() string {
	return leaseName(f.Gateway.GetName(), f.Gateway.GetNamespace(), f.Gateway.kind.mode)
}

// lease adds the Lease, empty: the gateways fill it.
func (f *Facts) lease(p *Plan) {
	if f.elects() {
		p.Objects = append(p.Objects, &coordinationv1.Lease{ObjectMeta: f.meta(f.leaseName(), f.Gateway.self())})
	}
}

// connection adds the Connection, which is the gateway's to keep.
func (f *Facts) connection(p *Plan) {
	g := f.Gateway
	p.Objects = append(p.Objects, &networkingv1beta1.Connection{
		ObjectMeta: f.meta(childName(g.GetName()), g.family()),
		Spec: networkingv1beta1.ConnectionSpec{Type: g.kind.connection, GatewayRef: corev1.ObjectReference{
			APIVersion: networkingv1beta1.GroupVersion.String(), Kind: g.kind.name, Name: g.GetName(), Namespace: g.GetNamespace(), UID: g.GetUID(),
		}},
	})
	p.BeginConnection = f.Connection != nil && f.Connection.Status.Value == ""
}

// volumeSecret is the Secret of the pods' volume for keys.
func volumeSecret(pod *corev1.PodSpec) string {
	for i := range pod.Volumes {
		if v := &pod.Volumes[i]; v.Name == keysVolume && v.Secret != nil {
			return v.Secret.SecretName
		}
	}
	return ""
}
