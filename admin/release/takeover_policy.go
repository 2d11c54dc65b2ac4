package release

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Liqo's controllers have no switch for their network alone: without it they would end offloading, too. So they go on
// running, and a policy refuses what they write of the network.

// policyName is that of the policy and of its binding.
const policyName = access.TakeoverPolicy

const policyMessage = "Sluice runs the network of this cluster: 'liqoctl uninstall --hand-back' gives it back to Liqo"

// networkPolicies are what refuses to Liqo's accounts what is of the network: its kinds, and what its controllers make of
// gateways and IPs. Offloading needs IPs of its pods and of the API server, without which Liqo's controller manager does not
// even start. They get their addresses from our controllers; a new finalizer of Liqo's on them would be removed by nobody.
func networkPolicies(namespace string, accounts []string) []client.Object {
	users := make([]string, len(accounts))
	for i, a := range accounts {
		users[i] = fmt.Sprintf("'system:serviceaccount:%s:%s'", namespace, a)
	}
	rule := func(group string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
		var r admissionregistrationv1.NamedRuleWithOperations
		r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete}
		r.APIGroups, r.APIVersions, r.Resources = []string{group}, []string{"*"}, resources
		return r
	}
	networking, ipam := networkingv1beta1.GroupVersion.Group, ipamv1alpha1.GroupVersion.Group
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: adoptionMeta(policyName)}
	policy.SetGroupVersionKind(policyKind)
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admissionregistrationv1.Fail),
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
			rule(networking, "*/*"), rule(ipam, "*/*"),
			rule("", "services", "serviceaccounts", "secrets"), rule("apps", "deployments"), rule("discovery.k8s.io", "endpointslices"),
			rule("rbac.authorization.k8s.io", "rolebindings", "clusterrolebindings"),
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name: "controllers-of-liqo", Expression: "request.userInfo.username in [" + strings.Join(users, ", ") + "]",
		}},
		Variables: []admissionregistrationv1.Variable{
			{Name: "meta", Expression: "object == null ? oldObject.metadata : object.metadata"},
			{Name: "ofNetwork", Expression: fmt.Sprintf("request.resource.group in ['%s', '%s']", networking, ipam)},
			// What is made of a gateway or an IP has it as its owner, or where none reaches, a label.
			{Name: "made", Expression: fmt.Sprintf("has(variables.meta.ownerReferences) && variables.meta.ownerReferences.exists(o, o.apiVersion.startsWith('%s/') || o.apiVersion.startsWith('%s/')) || "+
				"has(variables.meta.labels) && '%s' in variables.meta.labels", networking, ipam, networkingv1beta1.LabelGatewayName)},
			{Name: "ofOffloading", Expression: fmt.Sprintf("request.resource.resource == 'ips' && (!has(request.subResource) || request.subResource == '') && "+
				"has(variables.meta.labels) && ('%s' in variables.meta.labels || '%s' in variables.meta.labels) && "+
				"(object == null || !has(object.metadata.finalizers) || object.metadata.finalizers.all(f, oldObject != null && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers))",
				networkingv1beta1.LabelOffloadedPodName, ipamv1alpha1.LabelIPType)},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "variables.ofNetwork ? variables.ofOffloading : !variables.made", Message: policyMessage, Reason: new(metav1.StatusReasonForbidden),
		}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: adoptionMeta(policyName)}
	binding.SetGroupVersionKind(bindingKind)
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policyName, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	return []client.Object{policy, binding}
}

var (
	policyKind  = admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy")
	bindingKind = admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding")
)

// Policies come into force late, and where there are several API servers, at each of them at another time. A balancer in front
// of them chooses one for each connection, so each question goes by its own: so many at once, and so many times in a row.
const (
	askedAtOnce = 12
	looksInARow = 2
)

// singly has each request go by a connection of its own. HTTP/2 is off for that.
type singly struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s singly) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return s.RoundTripper.RoundTrip(r)
}

// policyInForce waits until all API servers refuse what Liqo's controller manager writes, or until none does any more.
func policyInForce(ctx context.Context, c *access.Cluster, account string, refused bool, tell progress.Func) error {
	config := rest.CopyConfig(c.Config)
	config.Impersonate.UserName = fmt.Sprintf("system:serviceaccount:%s:%s", c.LiqoNamespace, account) // and its groups
	config.NextProtos = []string{"http/1.1"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return singly{next} })
	as, err := client.New(config, client.Options{Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()})
	if err != nil {
		return c.Explain("prepare a client", err)
	}
	what, done := "Liqo's controllers to be refused what they write of the network", "Liqo's controllers write nothing of the network any more"
	if !refused {
		what, done = "Liqo's controllers to be allowed to write what is of the network", "Liqo's controllers write what is of the network again"
	}
	row := 0
	return waiter{cluster: c, tell: onlyNews(tell)}.until(ctx, what, done, c.LiqoNamespace, policyName, func(ctx context.Context) (string, error) {
		answers := make([]error, askedAtOnce)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				probe := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: c.LiqoNamespace, Name: "sluice-probe"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "192.0.2.0/24"}}
				answers[i] = as.Create(ctx, probe, client.DryRunAll)
			})
		}
		wg.Wait()
		all, err := allAnswer(answers, refused)
		if err != nil {
			row = 0
			return "", fmt.Errorf("try what the account %s may write: %w", account, err)
		}
		if row++; !all {
			row = 0
		}
		if row < looksInARow {
			return "the policy " + policyName + " takes effect late", nil
		}
		return "", nil
	})
}

// allAnswer tells whether the policy has refused all writes, or none of them. An error is one that tells nothing of it.
func allAnswer(answers []error, refused bool) (all bool, err error) {
	all = true
	for _, a := range answers {
		isRefused := a != nil && strings.Contains(a.Error(), policyName)
		if a != nil && !isRefused {
			return false, a
		}
		all = all && isRefused == refused
	}
	return all, nil
}
