package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Error is something that went wrong in a cluster, with its name in front.
type Error struct {
	Cluster string // Local, Remote or empty
	Err     error
}

func (e *Error) Error() string {
	if e.Cluster == "" {
		return e.Err.Error()
	}
	return "(" + e.Cluster + ") " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf is fmt.Errorf with the cluster's name in front.
func (c *Cluster) Errorf(format string, args ...any) error {
	return &Error{Cluster: c.Name, Err: fmt.Errorf(format, args...)}
}

// Explain says in plain words why the cluster did not do something, and what to
// do about it. Doing is a verb phrase that names the object: "create
// GatewayServer liqo-tenant-milan/milan". An error that tells its cluster
// already, and nil, are returned as they are.
func (c *Cluster) Explain(doing string, err error) error {
	var told *Error
	if err == nil || errors.As(err, &told) {
		return err
	}
	return &Error{Cluster: c.Name, Err: c.explain(doing, err)}
}

func (c *Cluster) explain(doing string, err error) error {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted: %w", doing, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer in time: %w", doing, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server %s does not accept the credentials of %s: log in again, or choose others with %s or %s: %w",
			doing, c.host(), c.Origin, c.Flag("kubeconfig"), c.Flag("context"), err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%s: the namespace is being deleted: try again when it is gone: %w", doing, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: the user of %s may not do this: ask for the right, or use another context: %w", doing, c.Origin, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: the cluster does not know this kind: its CRDs are missing or old; run 'liqoctl install' with this version: %w", doing, err)
	case errors.As(err, &dns):
		return fmt.Errorf("%s: the API server's name %s cannot be resolved: check %s (%s): %w", doing, dns.Name, c.Flag("kubeconfig"), c.Origin, err)
	case errors.As(err, &op):
		return fmt.Errorf("%s: the API server %s cannot be reached: check that the cluster runs and that %s is right (%s): %w",
			doing, c.host(), c.Flag("kubeconfig"), c.Origin, err)
	case strings.Contains(err.Error(), "x509: "):
		return fmt.Errorf("%s: the API server %s shows a certificate that %s does not trust: get a kubeconfig of this cluster: %w", doing, c.host(), c.Origin, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (c *Cluster) host() string {
	if c.Config == nil {
		return ""
	}
	return c.Config.Host
}
