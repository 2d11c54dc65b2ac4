package replication

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

const (
	// sweepTries is how often what was copied is tried to be taken back from a provider that denies it, or of which there is
	// no record.
	sweepTries = 5
	// lastSweepRetry bounds the pauses after which a provider that is away is asked again.
	lastSweepRetry = 5 * time.Minute
)

// sweep takes back what was copied to one place.
type sweep struct {
	stop context.CancelFunc
	done chan struct{}
}

// sweep has a session take back what it has copied, unless another one copies to the same place. ended is closed when the
// session copies no more; nil: it never has.
func (r *Reconciler) sweep(s *session, ended <-chan struct{}) {
	for _, other := range r.sessions {
		if other.session != nil && other.peer == s.peer {
			return
		}
	}
	r.stopSweep(s.peer)
	ctx, stop := context.WithCancel(r.lifetime)
	n := &sweep{stop: stop, done: make(chan struct{})}
	r.sweeps[s.peer] = n
	go func() {
		defer r.swept(s.peer, n)
		if ended != nil {
			<-ended
		}
		over := s.takeBack(ctx, func() bool {
			kept, err := r.records.kept(ctx, s.peer)
			return kept || err != nil
		})
		if !over {
			return
		}
		if err := r.records.drop(ctx, s.peer); err != nil && ctx.Err() == nil {
			s.log.Error(err, "take away the record of copies")
		}
	}()
}

// swept ends a sweep. Only after that it needs mu, whose holder may wait for its end.
func (r *Reconciler) swept(p peer, n *sweep) {
	n.stop()
	close(n.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sweeps[p] == n {
		delete(r.sweeps, p)
	}
}

// stopSweep ends the sweep of a place, if there is one. The caller holds mu, which a sweep does not until it has ended.
func (r *Reconciler) stopSweep(p peer) {
	if s := r.sweeps[p]; s != nil {
		s.stop()
		<-s.done
		delete(r.sweeps, p)
	}
}

// forget takes back what the session of an identity had copied that was refused later, and is something else or gone now.
func (r *Reconciler) forget(before *running) {
	if before != nil && before.session == nil {
		go r.sweepOrphans(r.lifetime)
	}
}

// sweepOrphans takes back the copies whose identities are gone: while no controller ran, or earlier if it ended too soon.
func (r *Reconciler) sweepOrphans(ctx context.Context) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		own, err := r.Cluster.ID(ctx)
		var orphans []record
		if err == nil {
			orphans, err = r.records.orphans(ctx, own)
		}
		if err == nil {
			r.sweepAll(ctx, orphans)
			return
		}
		if ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "find what copies are to be taken back")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *Reconciler) sweepAll(ctx context.Context, orphans []record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range orphans {
		if ctx.Err() != nil || r.sweeps[o.peer].runs() {
			continue
		}
		logger := log.FromContext(ctx).WithName("replication").WithValues("clusterID", o.provider)
		cfg, err := credentials.ReadKubeconfig(o.kubeconfig)
		if err == nil {
			err = r.sweepBy(cfg, o.peer)
		}
		if err != nil { // somebody has changed the record
			logger.Error(err, "what was copied to a provider is left there")
		}
	}
}

func (r *Reconciler) sweepBy(cfg *rest.Config, p peer) error {
	remote, err := remoteClient(r.Client, cfg, r.Kinds)
	if err != nil {
		return err
	}
	logger := log.FromContext(r.lifetime).WithName("replication").WithValues("clusterID", p.provider)
	logger.Info("taking back what was copied: its identity is gone", "namespace", p.here, "remoteNamespace", p.there)
	r.sweep(newSession(p, r.Kinds, r.Client, remote, logger, nil), nil)
	return nil
}

// runs tells whether it has not ended.
func (s *sweep) runs() bool {
	if s == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// takeBack deletes everything that was copied. A provider that has taken our rights must clean up itself, which deleting
// the Tenant does. One that is away is asked until it answers, for as long as kept says so. It tells whether that is over:
// only the end of ctx comes before.
func (s *session) takeBack(ctx context.Context, kept func() bool) (over bool) {
	pause := firstRetry
	for try := 1; ; try++ {
		away, err := s.takeBackOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			return true
		case try >= sweepTries && !away: // who has deleted our Tenant as well has nothing of it left
			s.log.Info("the provider denies access to what was copied to it: what is left of it is for the provider to remove", "why", text.Printable(err.Error(), 1000))
			return true
		case try >= sweepTries && !kept():
			s.log.Error(errors.New(text.Printable(err.Error(), 1000)), "what was copied to a provider is left there")
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		pause = min(2*pause, lastSweepRetry)
	}
}

// takeBackOnce tells of a failure whether another try may have another end.
func (s *session) takeBackOnce(ctx context.Context) (away bool, failed error) {
	add := func(err error) {
		if err != nil {
			failed = errors.Join(failed, err)
			away = away || !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err)
		}
	}
	for _, kind := range s.kinds {
		there, err := s.listThere(ctx, kind)
		if kind == namespaceMap && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
			continue // a provider without offloading has none
		}
		add(err)
		var several failures
		for i := range there {
			if s.ours(&there[i]) {
				several.add(s.remove(ctx, &there[i]))
			}
		}
		for _, err := range several {
			add(err)
		}
	}
	return away, failed
}
