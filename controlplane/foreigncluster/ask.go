package foreigncluster

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/event"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

const (
	// interval is how often each API server is asked, askTimeout how long it may take to answer: Liqo's.
	interval, askTimeout = 15 * time.Second, 5 * time.Second
	// maxAsked bounds how many are asked at the same time.
	maxAsked = 64
	// maxAnswer bounds what is read of an answer, in bytes. It is read so that the connection serves again.
	maxAnswer = 4 << 10
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
	url        string
	client     *http.Client
	// answer is the last one; nil: none yet.
	answer *Answer
}

func newAsker() *asker {
	return &asker{
		changed: make(chan event.TypedGenericEvent[*corev1beta1.ForeignCluster]), wake: make(chan struct{}, 1), providers: map[string]*provider{},
	}
}

// answerOf returns what the API server of a cluster answered last, and has it asked from now on by this kubeconfig. An
// empty one ends that.
func (a *asker) answerOf(id string, kubeconfig []byte) *Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.providers[id]
	switch {
	case len(kubeconfig) == 0:
		delete(a.providers, id)
		return nil
	case p != nil && bytes.Equal(p.kubeconfig, kubeconfig):
		return p.answer
	}
	p = newProvider(kubeconfig)
	a.providers[id] = p
	if p.client != nil {
		select {
		case a.wake <- struct{}{}:
		default: // it will be
		}
	}
	return p.answer
}

func newProvider(kubeconfig []byte) *provider {
	p := &provider{kubeconfig: bytes.Clone(kubeconfig)}
	cfg, err := credentials.ReadKubeconfig(kubeconfig)
	if err != nil {
		p.answer = &Answer{Problem: fmt.Sprintf("the kubeconfig: %v", err)}
		return p
	}
	transport, err := rest.TransportFor(cfg)
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
			answer := Answer{Problem: ask(ctx, p.client, p.url)}
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

// ask asks one API server for /livez and says what is wrong with it; empty: nothing. One that answers, and does not let
// us ask, serves. The text must be the same as long as the fault is.
func ask(ctx context.Context, c *http.Client, server string) (problem string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	where, err := url.JoinPath(server, "livez")
	if err != nil {
		return err.Error()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, http.NoBody)
	if err != nil {
		return err.Error()
	}
	response, err := c.Do(request)
	if err != nil {
		return whyNot(ctx, err)
	}
	defer response.Body.Close()
	if _, err := io.CopyN(io.Discard, response.Body, maxAnswer); err != nil && !errors.Is(err, io.EOF) {
		return whyNot(ctx, err)
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusForbidden:
		return ""
	case http.StatusUnauthorized:
		return "it does not accept the credentials of this cluster's identity: make the identity anew (liqoctl authenticate), or put newer ones into its Secret"
	}
	return fmt.Sprintf("it answers /livez with status %d", response.StatusCode)
}

// whyNot says why there is no answer, in words that stay the same as long as the reason does: no ports, no times.
func whyNot(ctx context.Context, err error) string {
	var late interface{ Timeout() bool }
	if ctx.Err() != nil || errors.As(err, &late) && late.Timeout() {
		return "it does not answer in time"
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "its certificate has expired, or the clocks of the clusters differ"
	}
	return "it cannot be reached: " + innermost(err).Error()
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
