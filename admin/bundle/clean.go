package bundle

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/admin/access"
)

// cleaner takes out of objects, by their structure, what may be secret, and what
// only fills pages.
type cleaner struct {
	// secrets are values that it has met, to be searched for elsewhere.
	secrets [][]byte
}

// object changes an object.
func (c *cleaner) object(o *unstructured.Unstructured) {
	if o.GetKind() == "ConfigMap" {
		cleanData(o.Object, ourConfigMaps[o.GetName()])
	}
	c.value(o.Object)
}

// ourConfigMaps are those of an installation, and the entries of them that are
// shown.
var ourConfigMaps = map[string][]string{
	"liqo-clusterid-configmap":   {"CLUSTER_ID"},
	access.InstallationConfigMap: {"version", "cluster.labels", "gateway.mtu", "gateway.server.service.port", "gateway.server.service.type"},
}

// cleanData keeps the names of entries, and the values of some.
func cleanData(o map[string]any, shown []string) {
	kept := make(map[string]any)
	for _, field := range []string{"data", "stringData", "binaryData"} {
		entries, _ := o[field].(map[string]any)
		delete(o, field)
		for name, v := range entries {
			if kept[name] = left; slices.Contains(shown, name) {
				kept[name] = v
			}
		}
	}
	o["entries"] = kept // not the name of a field that is left out everywhere
}

// knownAnnotation are annotations whose values hold no secrets: those of our API,
// and some of Kubernetes.
var knownAnnotation = regexp.MustCompile(`^(?:[a-z0-9.-]*\.)?liqo\.io/|^(?:deployment|pod-security|endpoints|control-plane\.alpha)\.kubernetes\.io/|^kubernetes\.io/(?:change-cause|description)$|^helm\.sh/|^meta\.helm\.sh/`)

// cleanMetadata leaves out the values of annotations that nobody knows here:
// whole manifests stand in some, with whatever their authors put into them.
func cleanMetadata(o map[string]any) {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		return
	}
	delete(m, "managedFields")
	annotations, ok := m["annotations"].(map[string]any)
	if !ok {
		return
	}
	for name := range annotations {
		if name == "kubectl.kubernetes.io/last-applied-configuration" {
			delete(annotations, name)
		} else if !knownAnnotation.MatchString(name) {
			annotations[name] = left
		}
	}
}

// value goes through everything below a value. It knows no kinds: pod templates
// are found at any depth, also in the templates of gateways.
func (c *cleaner) value(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			c.value(e)
		}
	case map[string]any:
		cleanMetadata(v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = c.field(name, v[name])
		}
	}
}

// field returns what is shown of a field.
func (c *cleaner) field(name string, value any) any {
	switch name {
	case "env", "httpHeaders":
		return c.pairs(value)
	case "args", "command":
		if words, ok := value.([]any); ok {
			return cleanArgs(words)
		}
	case "data", "stringData", "binaryData", "volumeAttributes", "options":
		if m, ok := value.(map[string]any); ok {
			for k := range m {
				m[k] = left
			}
			return m
		}
	}
	if text, ok := value.(string); ok && tellsSecret(name) && text != "" {
		return left
	}
	c.value(value)
	return value
}

// pairs keeps the names, and where values come from, but not values.
func (c *cleaner) pairs(value any) any {
	pairs, ok := value.([]any)
	if !ok {
		return left
	}
	for _, p := range pairs {
		m, ok := p.(map[string]any)
		if !ok || m["value"] == nil || m["value"] == "" {
			continue
		}
		name, _ := m["name"].(string)
		if text, ok := m["value"].(string); ok && tellsSecret(name) {
			c.secrets = append(c.secrets, []byte(text))
		}
		m["value"] = left
	}
	return pairs
}

// secretName is a name whose value is a secret.
var secretName = regexp.MustCompile(`(?i)passw(or)?d|passphrase|token|credential|private[_-]?key|api[_-]?key|secret|preshared`)

func tellsSecret(name string) bool {
	return secretName.MatchString(name) && !harmlessEnd.MatchString(name)
}

// ourFlags are the flags of our programs whose values are shown. None of them
// takes a secret; those that are not here are not known to this version.
var ourFlags = []string{
	"admin-socket", "bind-address", "cache-dir", "cluster-id", "concurrency", "external-cidr", "full-masquerade", "gateway-uid", "geneve-port",
	"health-probe-address", "internal-cidr", "ipam-pools", "keys-dir", "kube-api-burst", "kube-api-qps", "kubeconfig", "leader-election",
	"leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period", "link", "liqo-namespace", "log-format",
	"log-level", "manifests", "metrics-address", "mode", "name", "namespace", "node-name", "node-sockets", "path-mtu-discovery", "ping-interval", "ping-loss-threshold",
	"ping-update-status-interval", "pod-cidr", "pod-name", "pprof-address", "remote-cluster-id", "reserved-cidr", "rule-priority",
	"service-cidr", "strict-source", "tun-queues", "udp-gro", "udp-gso",
}

var (
	flagWord = regexp.MustCompile(`^(--?)([A-Za-z0-9][A-Za-z0-9._-]*)(=.*)?$`)
	// plainWord is a program, a path or a subcommand.
	plainWord = regexp.MustCompile(`^(/[A-Za-z0-9._/-]{1,200}|[a-z][a-z-]{0,19}|\$\([A-Za-z0-9_.-]+\))$`)
)

// cleanArgs keeps flags, the values of those that are ours, and words that can be
// nothing but a program or a path.
func cleanArgs(words []any) []any {
	out := make([]any, len(words))
	valueOf := "" // the flag that the word before was, if it had no value
	for i, w := range words {
		text, ok := w.(string)
		if !ok {
			out[i] = left
			continue
		}
		m := flagWord.FindStringSubmatch(text)
		switch {
		case m != nil && m[3] == "":
			out[i], valueOf = text, m[2]
			continue
		case m != nil && slices.Contains(ourFlags, m[2]):
			out[i] = text
		case m != nil:
			out[i] = m[1] + m[2] + "=" + left
		case valueOf == "" && plainWord.MatchString(text), slices.Contains(ourFlags, valueOf), strings.HasPrefix(text, "{{") && strings.HasSuffix(text, "}}") && !strings.Contains(text, `"`):
			out[i] = text
		default:
			out[i] = left
		}
		valueOf = ""
	}
	return out
}
