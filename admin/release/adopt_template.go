package release

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

const (
	// copyPrefix begins the name of a template that is a copy of one of Liqo's.
	copyPrefix = "sluice-"
	// labelAdoption is on every object that an adoption makes. Others are never changed.
	labelAdoption = access.LabelAdoption
	// annotationTemplateOf names, on a copy, the template of Liqo, in the same namespace.
	annotationTemplateOf = "networking.liqo.io/template-of"
	// annotationSilent tells, on a copy, that a handover is not completed, and whether the peer did not answer before it:
	// only then whoever goes on after an interruption does not wait for an answer.
	annotationSilent = "networking.liqo.io/peer-was-silent"
	peerAnswered     = "false"
	peerWasSilent    = "true"
	// gatewayContainer is the container of our pods, and one of the three of Liqo's.
	gatewayContainer = "gateway"
)

// liqosContainers are those of a pod of Liqo's gateway.
var liqosContainers = []string{gatewayContainer, "wireguard", "geneve"}

// Paths in a template of gateways.
var (
	pathDeployment = []string{"spec", "template", "spec", "deployment", "spec"}
	pathPod        = append(slices.Clone(pathDeployment), "template", "spec")
	pathPodLabels  = append(slices.Clone(pathDeployment), "template", "metadata", "labels")
	pathService    = []string{"spec", "template", "spec", "service", "spec"}
)

// adoptedTemplate is a copy, of that name, of a template of Liqo, theirs, with the pod of a template of ours. Whatever else stands in theirs
// stays: a Deployment whose selector changes, or a Service with another port, could not be changed in place.
func adoptedTemplate(name string, theirs, ours *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	copied := &unstructured.Unstructured{Object: map[string]any{"spec": theirs.DeepCopy().Object["spec"]}}
	copied.SetGroupVersionKind(theirs.GroupVersionKind())
	copied.SetNamespace(theirs.GetNamespace())
	copied.SetName(name)
	copied.SetLabels(map[string]string{labelManagedBy: managedByUs, labelAdoption: networkingv1beta1.LabelTrue})
	copied.SetAnnotations(map[string]string{annotationTemplateOf: theirs.GetName()})
	pod, of, err := templatePod(copied)
	if err != nil {
		return nil, err
	}
	own, containers, err := templatePod(ours.DeepCopy())
	if err != nil {
		return nil, err
	}
	unknown := slices.DeleteFunc(of.names(), func(n string) bool { return slices.Contains(liqosContainers, n) })
	if pod["initContainers"] != nil {
		unknown = append(unknown, "init containers")
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("its pods have containers that are not Liqo's, which would be lost: %s", strings.Join(unknown, ", "))
	}
	if len(containers) != 1 {
		return nil, fmt.Errorf("our template has %d containers", len(containers))
	}
	containers[0]["args"] = adoptedArgs(containers[0]["args"], of)
	for _, field := range []string{"containers", "volumes", "securityContext", "enableServiceLinks", "terminationGracePeriodSeconds"} {
		delete(pod, field)
		if v, there := own[field]; there {
			pod[field] = v
		}
	}
	dropKeysMode(pod)
	if more, _ := own["imagePullSecrets"].([]any); len(more) > 0 {
		secrets, _ := pod["imagePullSecrets"].([]any)
		pod["imagePullSecrets"] = append(secrets, more...)
	}
	return copied, onePod(copied)
}

// dropKeysMode leaves out the mode of the keys, which Liqo's controllers ignore: if ours set it, they would replace the pod
// when they take over the network.
func dropKeysMode(pod map[string]any) {
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if keys, ok := volume["secret"].(map[string]any); ok {
			delete(keys, "defaultMode")
		}
	}
}

// dropTunnelPort leaves out the port of our container that is .Spec.Endpoint.Port: Liqo's controllers render none where
// there are several. Nothing needs it, as a gateway reads its ports from the GatewayServer.
func dropTunnelPort(u *unstructured.Unstructured) {
	_, of, err := templatePod(u)
	if err != nil {
		return
	}
	ports, _ := of[0]["ports"].([]any)
	of[0]["ports"] = slices.DeleteFunc(slices.Clone(ports), func(p any) bool {
		port, _ := p.(map[string]any)
		_, rendered := port["containerPort"].(string)
		return rendered
	})
}

// onePod makes a template that of a single pod, which carries the mark of the one that forwards: Liqo's controllers leave
// it to its own gateways to move the mark.
func onePod(u *unstructured.Unstructured) error {
	set := func(v any, path []string, more ...string) error {
		return unstructured.SetNestedField(u.Object, v, append(slices.Clone(path), more...)...)
	}
	if err := set(int64(1), pathDeployment, "replicas"); err != nil {
		return err
	}
	if err := set(map[string]any{"type": "Recreate"}, pathDeployment, "strategy"); err != nil {
		return err
	}
	if err := set(networkingv1beta1.LabelTrue, pathPodLabels, networkingv1beta1.LabelActive); err != nil {
		return err
	}
	if _, err := table(u.Object, pathService); err != nil {
		return nil // of a client
	}
	// The pod is ready when a state is in force. The peer need not wait for the probe that finds it so.
	return set(true, pathService, "publishNotReadyAddresses")
}

// isOurs tells whether the pods of a template are ours, whoever made it.
func isOurs(u *unstructured.Unstructured) bool {
	_, of, err := templatePod(u)
	return err == nil && slices.Equal(of.names(), []string{gatewayContainer})
}

// adoptedArgs are the arguments of our container under Liqo: no election, no exchange of Services, and what Liqo's
// containers were told.
func adoptedArgs(ours any, theirs containerList) []any {
	var args []any
	list, _ := ours.([]any)
	for _, a := range list {
		text, _ := a.(string)
		name, _, _ := strings.Cut(text, "=")
		if name != "--leader-election" && name != "--services" {
			args = append(args, a)
		}
	}
	for _, told := range []struct{ container, flag, usual string }{
		{"geneve", "--geneve-port", "6091"},
		{gatewayContainer, "--ping-loss-threshold", "5"},
		{gatewayContainer, "--ping-interval", "2s"},
		{gatewayContainer, "--ping-update-status-interval", "10s"},
	} {
		value := theirs.flag(told.container, told.flag)
		if value == "" || value == told.usual {
			continue
		}
		args = slices.DeleteFunc(args, func(a any) bool { text, _ := a.(string); return strings.HasPrefix(text, told.flag+"=") })
		args = append(args, told.flag+"="+value)
	}
	return args
}

// containerList are containers of a template.
type containerList []map[string]any

func (l containerList) names() (names []string) {
	for _, c := range l {
		name, _ := c["name"].(string)
		names = append(names, name)
	}
	return names
}

// flag is the value of an argument of a container; empty: it has none.
func (l containerList) flag(container, flag string) string {
	for _, c := range l {
		args, _ := c["args"].([]any)
		for _, a := range args {
			text, _ := a.(string)
			if value, found := strings.CutPrefix(text, flag+"="); found && c["name"] == container {
				return value
			}
		}
	}
	return ""
}

// templatePod is the pod of a template of gateways, with its containers.
func templatePod(u *unstructured.Unstructured) (pod map[string]any, l containerList, err error) {
	if pod, err = table(u.Object, pathPod); err != nil {
		return nil, nil, err
	}
	list, _ := pod["containers"].([]any)
	for _, c := range list {
		m, ok := c.(map[string]any)
		if !ok {
			return nil, nil, fmt.Errorf("a container is no object but a %T", c)
		}
		l = append(l, m)
	}
	if len(l) == 0 {
		return nil, nil, fmt.Errorf("it has no containers")
	}
	return pod, l, nil
}

// table is the object at a path, which must be there.
func table(o map[string]any, path []string) (map[string]any, error) {
	m, found, err := unstructured.NestedFieldNoCopy(o, path...)
	t, ok := m.(map[string]any)
	if err != nil || !found || !ok {
		return nil, fmt.Errorf("it has no object at %s", strings.Join(path, "."))
	}
	return t, nil
}
