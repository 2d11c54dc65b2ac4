package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sluice-net/sluice/admin/access"
)

const listSeparator = os.PathListSeparator

// reachTimeout is how long a cluster may take for its first answer.
const reachTimeout = 15 * time.Second

// reach asks a cluster who the user is, which every user may know: it can be
// reached then, and accepts the credentials.
func (a *app) reach(ctx context.Context, c *access.Cluster) error {
	say := a.console.Progress()
	say.Waiting(c.Name, "Waiting for the API server "+c.Config.Host)
	defer say.Ended(c.Name)
	return a.answers(ctx, c)
}

// answers is reach without a word while it waits.
func (a *app) answers(ctx context.Context, c *access.Cluster) error {
	ask, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	_, err := c.Clientset.AuthenticationV1().SelfSubjectReviews().Create(ask, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsForbidden(err):
		return nil // it answers; what it forbids will be said where it matters
	case ctx.Err() != nil:
		return c.Explain("reach the cluster", ctx.Err())
	case utilnet.IsTimeout(err): // also of TLS
		return unreached(c, err, fmt.Sprintf("the API server %s does not answer", c.Config.Host),
			fmt.Sprintf("check that the cluster runs, that no firewall or VPN is in the way, and that this is the right cluster (%s)", c.Origin))
	}
	if noAPIServer(err) {
		return unreached(c, err, fmt.Sprintf("the server at %s is not a Kubernetes API server, or is older than 1.28", c.Config.Host),
			fmt.Sprintf("check %s (%s)", c.Flag("kubeconfig"), c.Origin))
	}
	return c.Explain("reach the cluster", err)
}

// unreached says why a cluster cannot be worked on, and what to do.
func unreached(c *access.Cluster, err error, what, advice string) error {
	return &access.Error{Cluster: c.Name, Err: &access.Explanation{Doing: "reach the cluster", What: what, Advice: advice, Err: err}}
}

// noAPIServer tells whether somebody answered who does not speak as API servers do.
func noAPIServer(err error) bool {
	var notSent *url.Error
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
	}
	return !errors.As(err, &notSent)
}

// warnings shows what an API server remarks on a request: each remark once.
type warnings struct {
	flags *clusterFlags
	warn  func(string)

	seen sync.Map // of texts
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	if code != 299 || text == "" { // the only code that API servers use
		return
	}
	if w.flags.name != "" {
		text = "(" + w.flags.name + ") " + text
	}
	if _, seen := w.seen.LoadOrStore(text, true); !seen {
		w.warn(text)
	}
}
