package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// plain is an error without the name of its cluster, which a Finding has anyway, and without the user's, which the check
// of permissions tells.
func plain(err error) string {
	var why *access.Explanation
	if errors.As(err, &why) && apierrors.IsForbidden(why.Err) && !access.IsAnonymous(why.Err) {
		return why.Doing + ": the user may not do this"
	}
	var told *access.Error
	if errors.As(err, &told) {
		return told.Err.Error()
	}
	return err.Error()
}

func apiAccess(c *cluster) []Finding {
	var why *access.Explanation
	switch {
	case errors.As(c.err, &why) && why.What != "":
		f := fail("%s", why.What).because("%s", cmp.Or(why.Cause, why.Err.Error()))
		if why.Advice != "" {
			f = f.fix("%s", why.Advice)
		}
		return []Finding{f}
	case c.err != nil:
		return []Finding{fail("the API server of the cluster cannot be asked").because("%s", plain(c.err)).
			fix("check that the cluster runs, and which one the kubeconfig and its context name")}
	}
	return []Finding{pass("%s answers", c.host)}
}

func permissions(c *cluster) []Finding {
	if c.Within != "" {
		return []Finding{warn("the user of %s sees only namespace %s", c.origin, c.Within).
			because("what is elsewhere in this cluster is not judged").fix("to see all of it, have its administrators run 'liqoctl network doctor' there")}
	}
	if c.needed != nil {
		return []Finding{fail("%s", plain(c.needed)).because("what cannot be read cannot be judged: the checks that need it are skipped")}
	}
	if c.wanted != nil {
		return []Finding{warn("%s", plain(c.wanted)).because("gateways, logs and events cannot be queried without it: some checks see less, or nothing")}
	}
	return []Finding{pass("all that is asked for may be read")}
}

// oldestKubernetes is the first whose CEL knows the functions for addresses that
// our schemas use.
var oldestKubernetes = version.MustParseGeneric("1.31")

func kubernetesVersion(c *cluster) []Finding {
	text := c.Installation.KubernetesVersion
	v, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		return []Finding{skip("the API server does not tell its version")}
	case v.LessThan(oldestKubernetes):
		return []Finding{fail("Kubernetes %s is too old", text).because("the CRDs use rules that API servers know from %s on", oldestKubernetes).
			fix("upgrade the cluster to Kubernetes %s or later", oldestKubernetes)}
	}
	return []Finding{pass("Kubernetes %s", text)}
}

// upgradeHint is what to do about CRDs and components of another version.
const upgradeHint = "run 'liqoctl install' of the version that the cluster should have: it updates CRDs and components"

func customResources(c *cluster) []Finding {
	if c.crds.err != nil {
		return []Finding{skip("%s", plain(c.crds.err))}
	}
	if c.Installation.OfLiqo() {
		return []Finding{pass("those of Liqo %s, which runs here; what its objects do not tell is not judged", c.Installation.Version)}
	}
	var missing []string
	var out []Finding
	wanted, whose := c.wantedCRDs, ""
	if c.Installation.Adopted() {
		whose = " of the network (the others are Liqo's)"
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(d apiextensionsv1.CustomResourceDefinition) bool { return !apply.OfNetwork(d.Spec.Group) })
	}
	for i := range wanted {
		want := &wanted[i]
		at := slices.IndexFunc(c.crds.items, func(o apiextensionsv1.CustomResourceDefinition) bool { return o.Name == want.Name })
		if at < 0 {
			missing = append(missing, want.Name)
			continue
		}
		out = append(out, compareCRD(want, &c.crds.items[at])...)
	}
	switch {
	case len(missing) == len(wanted):
		return []Finding{fail("there is none of the CRDs: nothing is installed").fix("install it with 'liqoctl install'")}
	case len(missing)+len(out) > 0 && c.MayBeOfLiqo():
		differ := "some differ from those of this version"
		if len(missing) > 0 {
			differ = "of those of this version these are missing: " + strings.Join(missing, ", ")
		}
		return []Finding{skip("%s; whether they are Liqo's is not known: %s", differ, c.unread("Deployment"))}
	case len(missing) > 0:
		out = append(out, fail("CRDs are missing: %s", strings.Join(missing, ", ")).because("the installation is incomplete or of an older version").fix(upgradeHint))
	}
	if len(out) == 0 {
		out = append(out, pass("all %d%s are there, and of this version", len(wanted), whose))
	}
	return out
}

// compareCRD judges one CRD by what this version wants of it.
func compareCRD(want, have *apiextensionsv1.CustomResourceDefinition) (out []Finding) {
	object := "CustomResourceDefinition " + want.Name
	for _, cond := range have.Status.Conditions {
		if cond.Type == apiextensionsv1.Established && cond.Status != apiextensionsv1.ConditionTrue {
			out = append(out, fail("the API server does not serve it: %s", cond.Message).on(object).fix(upgradeHint))
		}
	}
	for i := range want.Spec.Versions {
		v := &want.Spec.Versions[i]
		at := slices.IndexFunc(have.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == v.Name && o.Served })
		if at < 0 {
			out = append(out, fail("it does not serve %s", v.Name).on(object).because("it is of another product or of an older version").fix(upgradeHint))
			continue
		}
		if lacks := lacking(v.Schema, have.Spec.Versions[at].Schema); len(lacks) > 0 {
			out = append(out, fail("it has no %s", text.Few(lacks)).on(object).
				because("it is of an older version: the API server drops fields that it does not know, so controllers and gateways cannot report their state").fix(upgradeHint))
		}
	}
	return out
}

// lacking are the fields of one schema that another does not have.
func lacking(want, have *apiextensionsv1.CustomResourceValidation) (out []string) {
	if want == nil || want.OpenAPIV3Schema == nil {
		return nil
	}
	known := make(map[string]bool)
	if have != nil {
		kinds.Fields(have.OpenAPIV3Schema, "", func(path, _ string) { known[path] = true })
	}
	kinds.Fields(want.OpenAPIV3Schema, "", func(path, _ string) {
		parent := path[:max(0, strings.LastIndex(path, "."))]
		// A field of something that is missing itself is not worth telling.
		if !known[path] && (parent == "" || known[parent]) {
			out = append(out, path)
		}
	})
	slices.Sort(out)
	return out
}

func installation(c *cluster) (out []Finding) {
	if err := c.gap(access.ErrNotInstalled); err != nil {
		return []Finding{fail("%s", plain(err))}
	}
	var controller, agents bool
	for i := range c.Installation.Components {
		o := &c.Installation.Components[i]
		if !c.Installation.BesideOurs(o) {
			controller = controller || o.Controller()
			agents = agents || o.Kind == "DaemonSet"
		}
		out = append(out, c.component(o)...)
	}
	if second := c.Installation.SecondAgents(); second != nil {
		out = append(out, warn("Liqo's node agent runs beside Sluice's").on(second.String()).
			because("both write rules and routes of the same peerings on the nodes, and each puts back what the other has removed").
			fix("run 'liqoctl install --adopt' again, which ends it; to go back to Liqo's: liqoctl uninstall --hand-back"))
	}
	if text := c.Installation.Interrupted; text != "" { // it tells what is missing, too
		return append(out, warn("%s", text).on("Namespace "+c.Installation.Namespace))
	}
	deployments, daemonSets := c.unread("Deployment"), c.unread("DaemonSet")
	switch {
	case !controller && deployments != "":
		out = append(out, skip("%s", deployments))
	case !controller:
		out = append(out, fail("there is no Deployment of the controller in namespace %s", c.Installation.Namespace).
			because("nothing creates gateways from the objects, or maintains them").fix("install it with 'liqoctl install'"))
	}
	switch {
	case !agents && daemonSets != "":
		out = append(out, skip("%s", daemonSets))
	case !agents:
		out = append(out, warn("there is no DaemonSet of the node agent").
			because("without it the nodes have no tunnels to the gateways, unless something else creates them").fix("install it with 'liqoctl install'"))
	}
	if len(out) == 0 {
		out = append(out, pass("%s", strings.Join(c.componentTexts(), ", ")))
	}
	return out
}

func (c *cluster) componentTexts() (out []string) {
	for i := range c.Installation.Components {
		o := &c.Installation.Components[i]
		out = append(out, fmt.Sprintf("%s %d/%d", o.Name, o.Ready, o.Desired))
	}
	return out
}

// component judges a Deployment or a DaemonSet of the installation.
func (c *cluster) component(o *survey.Component) (out []Finding) {
	switch {
	case o.Off() && c.Installation.MayBeOff(o):
		return []Finding{pass(survey.OffNote).on(o.String())}
	case o.Off():
		return []Finding{warn("it is scaled to zero pods").on(o.String()).
			because("somebody scaled it to zero: %s", c.Installation.Without(o)).
			fix("%s", c.Installation.ScaleUp(o))}
	}
	if o.Healthy() {
		return nil
	}
	if e := refusedPods(c.events.items, o.Namespace, o.Name); e != nil && o.Updated < o.Desired { // else they were admitted since
		return []Finding{refusedBy(e).on(o.String())}
	}
	f := warn("%s%s", o.Readiness(), unreadyPods(o.Pods)).on(o.String()).fix("see 'kubectl -n %s describe pods'", o.Namespace)
	beside := c.Installation.BesideOurs(o)
	if o.Kind == "DaemonSet" && !beside {
		f = f.because("the network of the other nodes no longer follows changes, and that of new nodes never comes up")
	}
	if o.Ready == 0 {
		f.Status = Failed
		if o.Kind == "Deployment" {
			f = f.because("%s", c.Installation.Without(o))
		}
		if beside || c.Installation.MayBeOff(o) {
			f.Status = Warning
		}
	}
	return []Finding{f}
}

func unreadyPods(pods []survey.Pod) string {
	if len(pods) == 0 {
		return ""
	}
	return fmt.Sprintf(": pod %s: %s", pods[0].Name, pods[0].Reason)
}

// refusedPods is the last event that says that a pod of an owner could not be
// made; nil: there is none. ReplicaSets have the name of their Deployment in
// front of theirs.
func refusedPods(events []corev1.Event, namespace, owner string) *corev1.Event {
	for i := range events {
		e := &events[i]
		if e.Reason != "FailedCreate" || e.InvolvedObject.Namespace != namespace {
			continue
		}
		if name := e.InvolvedObject.Name; name == owner || e.InvolvedObject.Kind == "ReplicaSet" && strings.HasPrefix(name, owner+"-") {
			return e
		}
	}
	return nil
}

// refusedBy says why no pod could be made.
func refusedBy(e *corev1.Event) Finding {
	f := fail("the API server refuses its pods: %s", e.Message)
	if strings.Contains(e.Message, "violates PodSecurity") {
		return f.because("the label pod-security.kubernetes.io/enforce of namespace %s does not admit them", e.InvolvedObject.Namespace).
			fix("remove from the template what is refused, or give the namespace a level that admits it")
	}
	if strings.Contains(e.Message, "exceeded quota") {
		return f.fix("raise the ResourceQuota of namespace %s", e.InvolvedObject.Namespace)
	}
	return f
}

// gap is the error of what could not be read for this reason; nil: none.
func (c *cluster) gap(reason error) error {
	for _, g := range c.Gaps {
		if errors.Is(g.Err, reason) {
			return g.Err
		}
	}
	return nil
}

// unreadable tells whether an error says that something could not be read, rather
// than that it is not there or not as it should be.
func unreadable(err error) bool {
	var lost net.Error
	if apierrors.IsNotFound(err) {
		return false
	}
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || errors.As(err, &lost)
}

// unread says why the objects of one of these kinds are not known, empty if they
// are.
func (c *cluster) unread(kinds ...string) string {
	for _, g := range c.Gaps {
		if slices.Contains(kinds, g.Kind) {
			return plain(g.Err)
		}
	}
	return ""
}
