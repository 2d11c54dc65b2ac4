package foreigncluster

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

const (
	// inTime is the problem of an API server that is silent.
	inTime = "it does not answer in time"
	// interval is how often each API server is asked, askTimeout how long it may take to answer: Liqo's.
	interval, askTimeout = 15 * time.Second, 5 * time.Second
	// maxAsked bounds how many are asked at the same time.
	maxAsked = 64
	// maxAnswer bounds what is read of an answer, in bytes. It is read so that the connection serves again.
	maxAnswer = 4 << 10
	// maxCause bounds the text of a failure, in bytes. Some quote the server: its certificate, or what it says in place of HTTP.
	maxCause = 300
)

// asker asks the API servers of providers whether they serve, and tells when an answer differs from that before.
type asker struct {
	// changed gets a ForeignCluster whose API server answers differently. The controller receives; who sends waits for it.
	changed chan event.TypedGenericEvent[*corev1beta1.ForeignCluster]
	// wake has it ask at once.
	wake chan struct{}

	mu        sync.Mutex
	providers map[string]*provider
}

// provider is the API server of one cluster.
type provider struct {
	kubeconfig []byte
	// namespace is the tenant namespace there; empty: it is not asked about.
	namespace string
	url       string
	client    *http.Client
	// answer is the last one; nil: none yet.
	answer *Answer
}

func newAsker() *asker {
	return &asker{
		changed: make(chan event.TypedGenericEvent[*corev1beta1.ForeignCluster]), wake: make(chan struct{}, 1), providers: map[string]*provider{},
	}
}

// answerOf returns what the API server of a cluster answered last, and has it asked from now on by this kubeconfig, about
// itself and about a namespace. An empty kubeconfig ends that.
func (a *asker) answerOf(id string, kubeconfig []byte, namespace string) *Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.providers[id]
	switch {
	case len(kubeconfig) == 0:
		delete(a.providers, id)
		return nil
	case p != nil && bytes.Equal(p.kubeconfig, kubeconfig) && p.namespace == namespace:
		return p.answer
	}
	p = newProvider(kubeconfig, namespace)
	a.providers[id] = p
	if p.client != nil {
		select {
		case a.wake <- struct{}{}:
		default: // it will be
		}
	}
	return p.answer
}

func newProvider(kubeconfig []byte, namespace string) *provider {
	p := &provider{kubeconfig: bytes.Clone(kubeconfig), namespace: namespace}
	cfg, err := credentials.ReadKubeconfig(kubeconfig)
	if err != nil {
		p.answer = &Answer{Problem: fmt.Sprintf("the kubeconfig: %v", err)}
		return p
	}
	transport, err := credentials.Transport(cfg)
	if err != nil {
		p.answer = &Answer{Problem: fmt.Sprintf("the kubeconfig: %v", err)}
		return p
	}
	p.url = cfg.Host
	p.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return p
}

// Start asks until ctx ends.
func (a *asker) Start(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.wake:
		}
		for _, id := range a.askAll(ctx) {
			changed := new(corev1beta1.ForeignCluster)
			changed.Name = id
			select {
			case a.changed <- event.TypedGenericEvent[*corev1beta1.ForeignCluster]{Object: changed}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// askAll asks every API server and returns the IDs of those that answer differently.
func (a *asker) askAll(ctx context.Context) (changed []string) {
	a.mu.Lock()
	asked := make(map[string]*provider, len(a.providers))
	for id, p := range a.providers {
		if p.client != nil {
			asked[id] = p
		}
	}
	a.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxAsked)
	for id, p := range asked {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			answer := p.ask(ctx)
			a.mu.Lock()
			defer a.mu.Unlock()
			if ctx.Err() != nil || p.answer != nil && *p.answer == answer {
				return
			}
			p.answer = &answer
			changed = append(changed, id)
		})
	}
	wg.Wait()
	return changed
}

// ask asks one API server whether it lives, and then whether it lets us ask for resources. One that answers, and does not
// let us ask whether it lives, does. The text must be the same as long as the fault is.
func (p *provider) ask(ctx context.Context) Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, err := p.get(ctx, "livez")
	switch {
	case err != nil:
		return Answer{Problem: whyNot(ctx, err)}
	case status == http.StatusUnauthorized:
		return Answer{Problem: "it does not accept the credentials of this cluster's identity: create the identity again (liqoctl authenticate), or put newer ones into its Secret"}
	case status != http.StatusOK && status != http.StatusForbidden:
		return Answer{Problem: fmt.Sprintf("it answers /livez with status %d", status)}
	case p.namespace == "":
		return Answer{}
	}
	g := authv1beta1.GroupVersion
	status, err = p.get(ctx, "apis/"+g.Group+"/"+g.Version+"/namespaces/"+p.namespace+"/resourceslices?limit=1")
	switch {
	case err != nil:
		return Answer{Problem: whyNot(ctx, err)}
	case status == http.StatusForbidden:
		return Answer{Reason: corev1beta1.ReasonIdentityDenied, Denied: fmt.Sprintf(
			"it denies access to its namespace %s: its administrator must bind the user of the kubeconfig to ClusterRole %s there, or the namespace is another one", p.namespace, authv1beta1.RemoteControlPlaneRole)}
	case status == http.StatusNotFound:
		return Answer{Reason: corev1beta1.ReasonIdentityNotReady, Denied: "it does not know ResourceSlices: its administrator must enable authentication there"}
	}
	return Answer{}
}

// get reads the status of an answer, and so much of the rest as bounds allow.
func (p *provider) get(ctx context.Context, path string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.url, "/")+"/"+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.CopyN(io.Discard, response.Body, maxAnswer); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return response.StatusCode, nil
}

// whyNot says why there is no answer, in words that stay the same as long as the reason does: no ports, no times.
func whyNot(ctx context.Context, err error) string {
	var late interface{ Timeout() bool }
	if ctx.Err() != nil || errors.As(err, &late) && late.Timeout() {
		return inTime
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "its certificate has expired, or the clocks of the clusters differ"
	}
	return "it cannot be reached: " + text.Printable(innermost(err).Error(), maxCause)
}

// innermost is the first cause of an error.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
