package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/controlplane/kinds"
)

// Names of clusters where a command works on two.
const (
	Local  = "local"
	Remote = "remote"
)

// Defaults of an installation.
const (
	// DefaultLiqoNamespace is where the installation lives.
	DefaultLiqoNamespace = "liqo"
	// clusterIDConfigMap holds the cluster ID, under clusterIDKey.
	clusterIDConfigMap = "liqo-clusterid-configmap"
	clusterIDKey       = "CLUSTER_ID"
)

// Options are what a Cluster is reached by.
type Options struct {
	// Name is Local, Remote, or empty where there is only one cluster.
	Name string
	// Origin says for messages where the credentials come from:
	// "kubeconfig /home/me/.kube/config, context rome".
	Origin string
	// Flags name this cluster to liqoctl where it is the only one: "--kubeconfig=rome.yaml".
	Flags []string
	// Namespace is the user's, or that of the kubeconfig's context.
	Namespace string
	// NamespaceGiven says that the user named it.
	NamespaceGiven bool
	// LiqoNamespace is where the installation lives. Empty: DefaultLiqoNamespace.
	LiqoNamespace string
}

// Cluster is one cluster.
type Cluster struct {
	Options
	// Config is what the connections are made of.
	Config *rest.Config
	// Client reads and writes objects, uncached, of the kinds of kinds.Scheme.
	Client client.WithWatch
	// Clientset is the same for what Client lacks: logs, discovery, tokens.
	Clientset kubernetes.Interface
}

// New builds a Cluster. It asks the cluster nothing yet.
func New(config *rest.Config, o Options) (*Cluster, error) {
	o.LiqoNamespace = cmp.Or(o.LiqoNamespace, DefaultLiqoNamespace)
	c := &Cluster{Options: o, Config: config}
	var err error
	if c.Client, err = client.NewWithWatch(config, client.Options{Scheme: kinds.Scheme()}); err != nil {
		return nil, c.Explain("prepare a client", err)
	}
	if c.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return nil, c.Explain("prepare a client", err)
	}
	return c, nil
}

// ErrNotInstalled says that a cluster has no installation of ours, or another
// namespace for it.
var ErrNotInstalled = errors.New("not installed")

// ID returns the name of the cluster among its peers. The error is
// ErrNotInstalled where the cluster has none.
func (c *Cluster) ID(ctx context.Context) (string, error) {
	var m corev1.ConfigMap
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.LiqoNamespace, Name: clusterIDConfigMap}, &m)
	if apierrors.IsNotFound(err) {
		return "", c.Errorf("there is no ConfigMap %s/%s, so Sluice is %w: install it with 'liqoctl install', or name its namespace with %s",
			c.LiqoNamespace, clusterIDConfigMap, ErrNotInstalled, c.Flag("liqo-namespace"))
	}
	if err != nil {
		return "", c.Explain(fmt.Sprintf("read ConfigMap %s/%s", c.LiqoNamespace, clusterIDConfigMap), err)
	}
	id := m.Data[clusterIDKey]
	if id == "" {
		return "", c.Errorf("ConfigMap %s/%s has no %s: the installation is incomplete; run 'liqoctl install' again", c.LiqoNamespace, clusterIDConfigMap, clusterIDKey)
	}
	return id, nil
}

// ownNamespace is where a user looks who may not look everywhere: the namespace of the kubeconfig's context, as that of a
// peering user has it. Empty: there is none, or the user named one.
func (c *Cluster) ownNamespace() string {
	if c.NamespaceGiven || c.Namespace == corev1.NamespaceDefault {
		return ""
	}
	return c.Namespace
}

// WhereAllowed lists everywhere, which is namespace "", and, where the user may not, in their own namespace. within is that
// one if that is allowed; the error is then that of listing there, and else the first one.
func (c *Cluster) WhereAllowed(list func(namespace string) error) (within string, err error) {
	err = list("")
	own := c.ownNamespace()
	if own == "" || !apierrors.IsForbidden(err) {
		return "", err
	}
	if in := list(own); !apierrors.IsForbidden(in) {
		return own, in
	}
	return "", err
}

// UID identifies the cluster whatever it is called and through whatever address
// it is reached: the UID of the namespace kube-system.
func (c *Cluster) UID(ctx context.Context) (types.UID, error) {
	var ns corev1.Namespace
	if err := c.Client.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, &ns); err != nil {
		return "", c.Explain("read namespace "+metav1.NamespaceSystem, err)
	}
	return ns.UID, nil
}

// Where tells people which cluster this is: the address of its API server, and where that
// comes from.
func (c *Cluster) Where() string { return fmt.Sprintf("%s (%s)", c.Config.Host, c.Origin) }

// Command is a command of liqoctl about this cluster alone, for a shell.
func (c *Cluster) Command(args ...string) string {
	words := slices.Concat([]string{"liqoctl"}, args, c.Flags)
	for i, w := range words {
		if strings.ContainsFunc(w, mustBeQuoted) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// mustBeQuoted tells whether a character may mean something to a shell.
func mustBeQuoted(r rune) bool {
	return !strings.ContainsRune("-_=.,:/@%+", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Flag is how a flag of this cluster is called: "--context", "--remote-context".
func (c *Cluster) Flag(name string) string {
	if c.Name == Remote {
		return "--remote-" + name
	}
	return "--" + name
}
