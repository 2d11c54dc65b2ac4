package virtualnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/reflection"
)

// Names of what is made for a provider.
const (
	// processName is that of the Deployment, and its service account, in the tenant namespace.
	processName = offloadingv1beta1.VirtualKubeletName
	// role is the ClusterRole of the service account for the whole cluster, namespaceRole the one for namespaces that are
	// offloaded.
	role, namespaceRole = "liqo-virtual-kubelet-local", "liqo-virtual-kubelet-offloaded"
)

// Reasons of the condition VirtualKubelet.
const (
	// ReasonNamespaceNotTenant means that the VirtualNode is not in the tenant namespace of its cluster.
	ReasonNamespaceNotTenant = "NamespaceNotTenant"
	// ReasonTemplateMissing means that the VkOptionsTemplate of the installation is missing, which names the image.
	ReasonTemplateMissing = "VkOptionsTemplateMissing"
	// ReasonObjectInTheWay means that there is an object of a name that is needed that is somebody else's.
	ReasonObjectInTheWay = "ObjectInTheWay"
	// ReasonNotReady means that the pod is not ready.
	ReasonNotReady = "VirtualKubeletNotReady"
	// ReasonReady means that it is.
	ReasonReady = "VirtualKubeletReady"
)

// Facts are about the process of one provider.
type Facts struct {
	// Own is the ID of this cluster, Peer that of the provider.
	Own, Peer string
	// Namespace is the one of the VirtualNodes, and Tenant whether it is the tenant namespace of the provider.
	Namespace string
	Tenant    bool
	// LiqoNamespace is that of the installation.
	LiqoNamespace string
	// Template says how the process is run; nil: there is none. TemplateName is its name, and Disagree whether VirtualNodes name
	// others: there is one process for all of a provider.
	Template     *offloadingv1beta1.VkOptionsTemplateSpec
	TemplateName types.NamespacedName
	Disagree     bool
	// VirtualNodes are those of the provider there are in the namespace, Nodes the Nodes that stand for it.
	VirtualNodes, Nodes int
	// Kubeconfigs are the Secrets that the VirtualNodes name.
	Kubeconfigs []string
	// Offloaded are the namespaces of this cluster that are offloaded to the provider.
	Offloaded []string
	// Deployment is nil while there is none.
	Deployment *appsv1.Deployment
}

// Build decides what there is for a provider, and the condition of its VirtualNodes. Without a condition there is to be
// nothing.
//
//	VirtualNodes    Nodes left    tenant namespace    process                     condition
//	some            -             yes                 there                       Creating, then Running
//	none            some          yes                 there: it ends the pods     -
//	some            -             no                  -                           None NamespaceNotTenant
//	some            -             yes, no template    as it is                    None VkOptionsTemplateMissing
//	none            none          -                   -                           -
func Build(f Facts) (objects []client.Object, remove bool, c offloadingv1beta1.VirtualNodeCondition) {
	c.Type = offloadingv1beta1.VirtualNodeVirtualKubelet
	if !f.Tenant {
		c.Status, c.Reason = offloadingv1beta1.VirtualNodeNone, ReasonNamespaceNotTenant
		c.Message = fmt.Sprintf("namespace %s is not the tenant namespace of cluster %s: it lacks the labels %s=true and %s=%[2]s",
			f.Namespace, f.Peer, networkingv1beta1.LabelTenantNamespace, networkingv1beta1.LabelRemoteClusterID)
		return nil, true, c
	}
	if f.VirtualNodes+f.Nodes == 0 {
		return nil, true, c
	}
	if f.Template == nil || f.Template.ContainerImage == "" {
		c.Status, c.Reason = offloadingv1beta1.VirtualNodeNone, ReasonTemplateMissing
		c.Message = fmt.Sprintf("there is no VkOptionsTemplate %s in namespace %s that names an image: ", f.TemplateName.Name, f.TemplateName.Namespace)
		if f.TemplateName == f.defaultTemplate() {
			c.Message += "install the chart with offloading.enabled"
		} else {
			c.Message += "make it, or take spec.vkOptionsTemplateRef out of the VirtualNode"
		}
		return nil, false, c
	}
	c.Status, c.Reason, c.Message = offloadingv1beta1.VirtualNodeCreating, ReasonNotReady, "no pod of Deployment "+processName+" is ready yet"
	if d := f.Deployment; d != nil {
		for _, dc := range d.Status.Conditions {
			if dc.Status != corev1.ConditionTrue && dc.Type != appsv1.DeploymentAvailable || dc.Type == appsv1.DeploymentReplicaFailure {
				c.Message += ": " + dc.Message
			}
		}
		if d.Status.ReadyReplicas > 0 {
			c.Status, c.Reason, c.Message = offloadingv1beta1.VirtualNodeRunning, ReasonReady, "Deployment "+processName+" has a ready pod"
		}
	}
	if f.Disagree {
		c.Message += fmt.Sprintf("; its VkOptionsTemplate is %s, as the oldest VirtualNode that names one has it: there is one process for all virtual nodes of the provider", f.TemplateName)
	}
	objects = f.objects()
	if f.VirtualNodes == 0 {
		// Which Secrets they named is not known any more, and the process is not through with them.
		objects = slices.DeleteFunc(objects, func(o client.Object) bool { _, is := o.(*rbacv1.Role); return is })
	}
	return objects, false, c
}

func (f *Facts) defaultTemplate() types.NamespacedName {
	return types.NamespacedName{Namespace: f.LiqoNamespace, Name: offloadingv1beta1.VkOptionsTemplateName}
}

// chooseTemplate finds out which VkOptionsTemplate counts: that of the oldest VirtualNode that names one, so that another one
// restarts nothing, or else that of the installation.
func (f *Facts) chooseTemplate(virtual []offloadingv1beta1.VirtualNode) {
	f.TemplateName, f.Disagree = f.defaultTemplate(), false
	named := slices.DeleteFunc(slices.Clone(virtual), func(v offloadingv1beta1.VirtualNode) bool {
		return v.Spec.VkOptionsTemplateRef == nil || v.Spec.VkOptionsTemplateRef.Name == ""
	})
	slices.SortFunc(named, func(a, b offloadingv1beta1.VirtualNode) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i, v := range named {
		ref := v.Spec.VkOptionsTemplateRef
		name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, f.LiqoNamespace), Name: ref.Name}
		if i == 0 {
			f.TemplateName = name
		}
		f.Disagree = f.Disagree || name != f.TemplateName
	}
}

func (f *Facts) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.Namespace, Name: name, Labels: f.labels()}
}

func (f *Facts) labels() map[string]string {
	return map[string]string{
		networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: f.Peer,
		offloadingv1beta1.LabelComponent: offloadingv1beta1.ComponentVirtualKubelet,
	}
}

func (f *Facts) objects() []client.Object {
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.Namespace, Name: processName}}
	template := f.Template
	if template == nil {
		template = new(offloadingv1beta1.VkOptionsTemplateSpec) // to be removed
	}
	everywhere := f.meta("liqo-virtual-kubelet-" + f.Namespace)
	everywhere.Namespace = ""
	selector := map[string]string{networkingv1beta1.LabelRemoteClusterID: f.Peer, offloadingv1beta1.LabelComponent: offloadingv1beta1.ComponentVirtualKubelet}
	get := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health")}}, PeriodSeconds: 10}
	}
	resources := template.Resources
	if len(resources.Requests) == 0 {
		resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("48Mi")}
	}
	env := func(name, field string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}}
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: f.meta(processName)},
		&rbacv1.ClusterRoleBinding{ObjectMeta: everywhere, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subject},
		&rbacv1.Role{ObjectMeta: f.meta(processName), Rules: f.rules()},
		&rbacv1.RoleBinding{ObjectMeta: f.meta(processName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: processName}, Subjects: subject},
		&appsv1.Deployment{
			ObjectMeta: f.meta(processName),
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: selector},
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, // two would write against each other
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: merged(template.ExtraLabels, selector), Annotations: template.ExtraAnnotations},
					Spec: corev1.PodSpec{
						ServiceAccountName: processName, ImagePullSecrets: template.ImagePullSecrets, Tolerations: template.Tolerations,
						SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
						Containers: []corev1.Container{{
							Name: processName, Image: template.ContainerImage, ImagePullPolicy: template.PullPolicy,
							Args: slices.Concat([]string{"--cluster-id=" + f.Own, "--peer-id=" + f.Peer, "--tenant-namespace=" + f.Namespace, "--namespace=" + f.LiqoNamespace},
								reflectionTypes(template.ReflectorsConfig), template.ExtraArgs),
							Env: []corev1.EnvVar{env("POD_IP", "status.podIP"), env("POD_NAME", "metadata.name")},
							Ports: []corev1.ContainerPort{
								{Name: "kubelet", ContainerPort: 10250, Protocol: corev1.ProtocolTCP}, {Name: "health", ContainerPort: 8081, Protocol: corev1.ProtocolTCP},
								{Name: "metrics", ContainerPort: 8082, Protocol: corev1.ProtocolTCP},
							},
							LivenessProbe: get("/healthz"), ReadinessProbe: get("/readyz"),
							Resources: resources,
							SecurityContext: &corev1.SecurityContext{
								AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
							},
							VolumeMounts: []corev1.VolumeMount{{Name: "run", MountPath: "/run"}},
						}},
						Volumes: []corev1.Volume{{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: new(corev1.EmptyDirVolumeSource)}}},
					},
				},
			},
		},
	}
}

// reflectionTypes are arguments for the kinds of which a template says which objects are reflected; without workers none are.
// The other kinds that Liqo lists there follow rules of their own.
func reflectionTypes(config map[string]offloadingv1beta1.ReflectorConfig) (args []string) {
	for _, kind := range slices.Sorted(maps.Keys(reflection.Switchable)) {
		c, ok := config[kind]
		if ok && c.NumWorkers == 0 {
			c.Type = "None"
		}
		if ok && c.Type != "" && c.Type != offloadingv1beta1.CustomLiqo {
			args = append(args, "--"+kind+"-reflection-type="+string(c.Type))
		}
	}
	return args
}

// rules are what the process may do in the tenant namespace. The Secrets there are keys of gateways and of the controllers
// too.
func (f *Facts) rules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{networkingv1beta1.GroupVersion.Group}, Resources: []string{"configurations", "connections"}, Verbs: read},
		{APIGroups: []string{offloadingv1beta1.GroupVersion.Group}, Resources: []string{"namespacemaps", "virtualnodes"}, Verbs: read},
		{APIGroups: []string{offloadingv1beta1.GroupVersion.Group}, Resources: []string{"virtualnodes/status"}, Verbs: []string{"patch"}},
	}
	if len(f.Kubeconfigs) > 0 { // without names it would be all of them
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: f.Kubeconfigs, Verbs: read})
	}
	return rules
}

// Bindings let the process read, in the namespaces that are offloaded, what their pods need.
func (f *Facts) Bindings() (all []*rbacv1.RoleBinding) {
	for _, namespace := range f.Offloaded {
		m := f.meta("liqo-virtual-kubelet-" + f.Namespace)
		m.Namespace = namespace
		all = append(all, &rbacv1.RoleBinding{
			ObjectMeta: m, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespaceRole},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.Namespace, Name: processName}},
		})
	}
	return all
}

// merged are all labels. Of one that both have the second counts.
func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(b)
	for key, value := range a {
		if _, there := all[key]; !there {
			all[key] = value
		}
	}
	return all
}

// processes keeps the process of each provider.
type processes struct {
	client.Client
	// Reader reads past the cache, which holds only what is ours.
	Reader        client.Reader
	id            func(context.Context) (string, error)
	liqoNamespace string
	now           func() metav1.Time
}

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=vkoptionstemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-local;liqo-virtual-kubelet-offloaded,verbs=bind
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps;namespaceoffloadings,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;connections,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Reconcile looks at one provider: the request is the tenant namespace and its ID.
func (r *processes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, virtual, err := r.gather(ctx, req)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	objects, remove, c := Build(f)
	if remove {
		if err := r.remove(ctx, f); err != nil {
			return ctrl.Result{}, err
		}
	}
	again, err := r.bind(ctx, f, remove)
	if err != nil {
		return ctrl.Result{}, err
	}
	var inTheWay []string
	for _, o := range objects {
		_, err := apply.Object(ctx, r.Client, r.Reader, o)
		theirs := new(apply.ForeignError)
		switch {
		case errors.As(err, &theirs):
			inTheWay = append(inTheWay, theirs.Error())
		case apply.NamespaceEnds(err):
			return ctrl.Result{}, nil
		case err != nil:
			return ctrl.Result{}, err
		}
	}
	if len(inTheWay) > 0 {
		c.Status, c.Reason, c.Message, again.RequeueAfter = offloadingv1beta1.VirtualNodeNone, ReasonObjectInTheWay, strings.Join(inTheWay, "; "), recheck
	}
	for i := range virtual {
		if err := r.tell(ctx, &virtual[i], c); err != nil {
			return ctrl.Result{}, err
		}
	}
	return again, nil
}

// bind gives the process its rights in namespaces that are offloaded, and takes them back in others.
func (r *processes) bind(ctx context.Context, f Facts, remove bool) (again ctrl.Result, err error) {
	if remove {
		f.Offloaded = nil
	}
	for _, b := range f.Bindings() {
		_, err := apply.Object(ctx, r.Client, r.Reader, b)
		why, refused := apply.Refusal(err)
		switch {
		case refused: // as in kube-system: the other namespaces do not wait for it
			log.FromContext(ctx).Info("a virtual kubelet gets no rights in a namespace", "namespace", b.Namespace, "clusterID", f.Peer, "why", why)
			again.RequeueAfter = recheck
		case err != nil && !apierrors.IsNotFound(err) && !apply.NamespaceEnds(err):
			return again, err
		}
	}
	var all rbacv1.RoleBindingList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy, client.MatchingLabels(f.labels())); err != nil {
		return again, err
	}
	for i := range all.Items {
		b := &all.Items[i]
		ours := len(b.Subjects) == 1 && b.Subjects[0].Namespace == f.Namespace && b.RoleRef.Name == namespaceRole
		if !ours || slices.Contains(f.Offloaded, b.Namespace) || !b.DeletionTimestamp.IsZero() {
			continue
		}
		if err := apply.DeleteOurs(ctx, r.Client, b.DeepCopy(), nil); err != nil {
			return again, err
		}
	}
	return again, nil
}

// remove deletes what is left of the process, last its rights.
func (r *processes) remove(ctx context.Context, f Facts) error {
	objects := f.objects()
	for i := len(objects) - 1; i >= 0; i-- {
		o := objects[i]
		err := r.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil && o.GetDeletionTimestamp().IsZero() && o.GetLabels()[networkingv1beta1.LabelRemoteClusterID] == f.Peer {
			log.FromContext(ctx).Info("nothing is left to keep for the provider", "clusterID", f.Peer, "removed", fmt.Sprintf("%T", o))
			err = apply.DeleteOurs(ctx, r.Client, o, nil)
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// tell writes the condition of one VirtualNode.
func (r *processes) tell(ctx context.Context, v *offloadingv1beta1.VirtualNode, c offloadingv1beta1.VirtualNodeCondition) error {
	_, err := apply.Status(ctx, r.Client, v, func() {
		c.LastTransitionTime = r.now()
		for i := range v.Status.Conditions {
			if had := &v.Status.Conditions[i]; had.Type == c.Type {
				if had.Status == c.Status {
					c.LastTransitionTime = had.LastTransitionTime
				}
				*had = c
				return
			}
		}
		v.Status.Conditions = append(v.Status.Conditions, c)
	})
	return client.IgnoreNotFound(err)
}

func (r *processes) gather(ctx context.Context, req ctrl.Request) (Facts, []offloadingv1beta1.VirtualNode, error) {
	f := Facts{Peer: req.Name, Namespace: req.Namespace, LiqoNamespace: r.liqoNamespace}
	ns := new(metav1.PartialObjectMetadata)
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Get(ctx, client.ObjectKey{Name: req.Namespace}, ns); client.IgnoreNotFound(err) != nil {
		return f, nil, err
	}
	f.Tenant = ns.DeletionTimestamp.IsZero() && ns.Labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue && ns.Labels[networkingv1beta1.LabelRemoteClusterID] == req.Name
	var all offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &all, client.InNamespace(req.Namespace)); err != nil {
		return f, nil, err
	}
	var virtual []offloadingv1beta1.VirtualNode
	for _, v := range all.Items {
		if string(v.Spec.ClusterID) == req.Name {
			virtual = append(virtual, v)
		}
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy, ofPeer(req.Name)); err != nil {
		return f, nil, err
	}
	f.VirtualNodes, f.Nodes = len(virtual), len(nodes.Items)
	for _, v := range virtual {
		if ref := v.Spec.KubeconfigSecretRef; ref != nil && ref.Name != "" && !slices.Contains(f.Kubeconfigs, ref.Name) {
			f.Kubeconfigs = append(f.Kubeconfigs, ref.Name)
		}
	}
	slices.Sort(f.Kubeconfigs)
	var offloadings offloadingv1beta1.NamespaceOffloadingList
	if err := r.List(ctx, &offloadings, client.UnsafeDisableDeepCopy); err != nil {
		return f, nil, err
	}
	var namespaces metav1.PartialObjectMetadataList
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return f, nil, err
	}
	// As the NamespaceMap has them, but not by it: the provider may write there.
	stand := placement.Nodes(all.Items, nodes.Items, req.Namespace, req.Name)
	stand = append(stand, placement.LeftOver(stand, nodes.Items, req.Name)...)
	f.Offloaded = slices.Sorted(maps.Keys(placement.Mapping(f.Own, stand, offloadings.Items, placement.Kept(namespaces.Items, r.liqoNamespace))))
	d := new(appsv1.Deployment)
	switch err := r.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: processName}, d); {
	case err == nil:
		f.Deployment = d
	case client.IgnoreNotFound(err) != nil:
		return f, nil, err
	}
	f.chooseTemplate(virtual)
	template := new(offloadingv1beta1.VkOptionsTemplate)
	switch err := r.Get(ctx, f.TemplateName, template); {
	case err == nil:
		f.Template = &template.Spec
	case client.IgnoreNotFound(err) != nil:
		return f, nil, err
	}
	var err error
	f.Own, err = r.id(ctx)
	return f, virtual, err
}

// ofPeer selects the Nodes that stand for a cluster.
func ofPeer(id string) client.MatchingLabels {
	return client.MatchingLabels{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual, networkingv1beta1.LabelRemoteClusterID: id}
}
