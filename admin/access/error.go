package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"
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

// Explanation is why a cluster did not do something.
type Explanation struct {
	// Doing is what was asked for: "create namespace liqo-tenant-milan".
	Doing string
	// What went wrong, Cause why if that is known, Advice what to do; each may be
	// empty.
	What, Cause, Advice string
	// Err is the error as it came.
	Err error
}

func (e *Explanation) Error() string {
	what := e.What
	if e.Cause != "" {
		what += " (" + e.Cause + ")"
	}
	text := e.Doing
	for _, part := range []string{what, e.Advice} {
		if part != "" {
			text += ": " + part
		}
	}
	return text + ": " + e.Err.Error()
}

func (e *Explanation) Unwrap() error { return e.Err }

func (c *Cluster) explain(doing string, err error) *Explanation {
	x := &Explanation{Doing: doing, Err: err}
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		x.What = "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		x.What = "no answer in time"
	case apierrors.IsUnauthorized(err) || IsAnonymous(err):
		x.What = fmt.Sprintf("the API server %s does not accept the credentials of %s", c.host(), c.Origin)
		x.Cause = expired(c.Config, time.Now())
		x.Advice = fmt.Sprintf("log in again, or choose others with %s or %s", c.Flag("kubeconfig"), c.Flag("context"))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		x.What, x.Advice = "the namespace is being deleted", "try again when it is gone"
	case apierrors.IsForbidden(err):
		x.What, x.Advice = fmt.Sprintf("the user of %s may not do this", c.Origin), "ask for the right, or use another context"
	case meta.IsNoMatchError(err):
		x.What, x.Advice = "the cluster does not know this kind", "its CRDs are missing or old; run 'liqoctl install' with this version"
	case errors.As(err, &dns):
		x.What = fmt.Sprintf("the API server's name %s cannot be resolved", dns.Name)
		x.Advice = fmt.Sprintf("check %s (%s)", c.Flag("kubeconfig"), c.Origin)
	case errors.As(err, &op):
		x.What = fmt.Sprintf("the API server %s cannot be reached", c.host())
		x.Advice = fmt.Sprintf("check that the cluster runs and that %s is right (%s)", c.Flag("kubeconfig"), c.Origin)
	case strings.Contains(err.Error(), "x509: certificate has expired"):
		x.What = fmt.Sprintf("the API server %s shows a certificate that is not valid now", c.host())
		x.Advice = "have it renewed, and see that the clock of this machine is right"
	case strings.Contains(err.Error(), "x509: "):
		x.What = fmt.Sprintf("the API server %s shows a certificate that %s does not trust", c.host(), c.Origin)
		x.Advice = "get a kubeconfig of this cluster"
	}
	return x
}

// IsAnonymous tells an answer to somebody who was not recognized at all: API
// servers without a client CA take those for anonymous, and forbid them things.
func IsAnonymous(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `"system:anonymous"`)
}

// Unreachable tells whether the cluster gave no answer, or that it cannot now.
func Unreachable(err error) bool {
	var network net.Error
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}

func (c *Cluster) host() string {
	if c.Config == nil {
		return ""
	}
	return c.Config.Host
}
