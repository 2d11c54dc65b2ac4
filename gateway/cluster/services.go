package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/objects/mirror"
)

const (
	exportedServices, importedServices = "exportedservices", "importedservices"

	// servicesRetry is when a write that failed is tried again, and the API server that does not answer asked again.
	servicesRetry = 5 * time.Second
	// servicesRights is the longest pause after which a gateway without the rights looks whether it has got them. The first
	// is a second: a controller that begins with Services may start the gateway before it changes the role.
	servicesRights = time.Minute
	// servicesRate is how many writes a second a peer may cause in the long run. A full set of Services passes at once, as
	// fast as one write after the other is answered.
	servicesRate, servicesBurst = 20, networkingv1beta1.MaxServices
)

// Services exchanges the Services of a peering: it tells the ExportedServices, and keeps the ImportedServices equal to what
// the peer tells, as long as this gateway leads.
type Services struct {
	Exchange *services.Exchange

	link     *Link
	log      *slog.Logger
	clients  *mirror.Clients // its own: what the peer causes to be written must not hold up the Connection
	client   rest.Interface
	exported *mirror.Store[networkingv1beta1.ExportedService, *networkingv1beta1.ExportedService]
	imported *mirror.Store[networkingv1beta1.ImportedService, *networkingv1beta1.ImportedService]
	offer    chan struct{} // one slot: the ExportedServices have changed
	wake     chan struct{} // one slot: what was heard has changed, or what is there

	// The writer's.
	failed string // the last error of a write that was logged
	differ services.Differ
	made   map[string]time.Time // when which object was made: the watch may not have told yet
}

// NewServices builds Services over a tunnel.
func (l *Link) NewServices(n services.Network) (*Services, error) {
	config := rest.CopyConfig(l.config)
	config.QPS, config.Burst = servicesRate, servicesBurst
	clients, err := mirror.NewClients(config, "sluice-gateway", mirror.Group{Version: networkingv1beta1.GroupVersion, AddToScheme: networkingv1beta1.AddToScheme})
	if err != nil {
		return nil, err
	}
	s := &Services{
		link: l, log: l.log, clients: clients, client: clients.For(networkingv1beta1.GroupVersion),
		exported: mirror.NewStore[networkingv1beta1.ExportedService](), imported: mirror.NewStore[networkingv1beta1.ImportedService](),
		offer: make(chan struct{}, 1), wake: make(chan struct{}, 1), made: map[string]time.Time{},
	}
	s.exported.Changed = func() { poke(s.offer) }
	s.imported.Changed = func() { poke(s.wake) }
	s.imported.Trim = func(i *networkingv1beta1.ImportedService) { i.Status = networkingv1beta1.ImportedServiceStatus{} }
	s.Exchange = services.New(services.Options{Network: n, Logger: l.log, Changed: func() { poke(s.wake) }})
	return s, nil
}

// poke fills the slot of a channel.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // somebody will look anyway
	}
}

// Run exchanges Services until ctx ends. Without the rights to it, it waits for them.
func (s *Services) Run(ctx context.Context) error {
	defer s.clients.Disconnect()
	if !s.permitted(ctx) {
		return nil
	}
	contact := mirror.NewContact(s.log)
	watched := func(resource string) mirror.Watched {
		return mirror.Watched{
			Client: s.client, Resource: resource, Namespace: s.link.options.Namespace,
			Labels: networkingv1beta1.LabelRemoteClusterID + "=" + s.link.options.ClusterID,
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { mirror.Follow(ctx, watched(exportedServices), s.exported, contact) })
	wg.Go(func() { mirror.Follow(ctx, watched(importedServices), s.imported, contact) })
	wg.Go(func() { s.tell(ctx) })
	wg.Go(func() { s.write(ctx) })
	err := s.Exchange.Run(ctx)
	wg.Wait()
	return err
}

// permitted waits until both kinds can be read. It is false when ctx ends before.
func (s *Services) permitted(ctx context.Context) bool {
	told, rights := false, time.Second
	for ctx.Err() == nil {
		var err error
		for _, resource := range []string{exportedServices, importedServices} {
			if err == nil {
				err = s.client.Get().Namespace(s.link.options.Namespace).Resource(resource).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(ctx).Error()
			}
		}
		wait := servicesRetry
		switch {
		case err == nil:
			return true
		case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
			if wait, rights = rights, min(2*rights, servicesRights); !told {
				s.log.Warn("no Services are exchanged with the peer: the gateway's role or the CRDs are those of a version without them", "error", mirror.PlainError(err))
			}
			told = true
		}
		services.Pause(ctx, wait)
	}
	return false
}

// tell offers the ExportedServices once all are read, and whenever they change.
func (s *Services) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.offer:
		}
		began := time.Now()
		if _, all := s.exported.Size(); all {
			s.Exchange.Offer(s.exported.List())
		}
		services.Pause(ctx, services.Gather(time.Since(began)))
	}
}

// write keeps the ImportedServices equal to what was heard. The client bounds the rate.
func (s *Services) write(ctx context.Context) {
	retry := time.NewTimer(servicesRetry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-retry.C:
		}
		retry.Reset(servicesRetry)
		heard, all := s.Exchange.Imported()
		if _, synced := s.imported.Size(); !all || !synced {
			continue
		}
		var failed error
		began := time.Now()
		maps.DeleteFunc(s.made, func(_ string, at time.Time) bool { return time.Since(at) >= servicesRetry })
		writes := s.differ.Writes(heard, s.imported.List())
		took := time.Since(began)
		for _, w := range writes {
			// There may be thousands of writes: what counts is what is heard when its turn comes.
			now, leads := s.Exchange.Imported()
			if !leads || ctx.Err() != nil {
				break
			}
			if (w.Spec == nil) != (now[w.Name] == nil) {
				continue // the next look decides
			}
			w.Spec = now[w.Name]
			if err := s.one(ctx, w); err != nil && failed == nil {
				failed = fmt.Errorf("ImportedService %s: %s", w.Name, mirror.PlainError(err))
			}
		}
		s.note(ctx, failed)
		services.Pause(ctx, services.Gather(took))
	}
}

// one makes one write. That another one was faster is no error: the watch tells of it.
func (s *Services) one(ctx context.Context, w services.Write) error {
	namespace := s.link.options.Namespace
	var err error
	switch {
	case w.Live == nil && time.Since(s.made[w.Name]) < servicesRetry:
		return nil
	case w.Live == nil:
		s.made[w.Name] = time.Now()
		o := &networkingv1beta1.ImportedService{ObjectMeta: s.meta(w.Name), Spec: *w.Spec}
		err = s.client.Post().Namespace(namespace).Resource(importedServices).Body(o).Do(ctx).Error()
	case w.Spec == nil:
		o := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.Live.UID}}
		err = s.client.Delete().Namespace(namespace).Resource(importedServices).Name(w.Name).Body(o).Do(ctx).Error()
	default:
		// The rest of the object is others': of it not all is at hand.
		patch, encodeErr := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": w.Spec}})
		if encodeErr != nil {
			return encodeErr
		}
		var after networkingv1beta1.ImportedService
		if err = s.client.Patch(types.JSONPatchType).Namespace(namespace).Resource(importedServices).Name(w.Name).Body(patch).Do(ctx).Into(&after); err == nil {
			s.imported.Wrote(&after)
		}
	}
	if apierrors.IsAlreadyExists(err) && w.Live == nil {
		return fmt.Errorf("one of that name is there, without the label %s=%s: delete it", networkingv1beta1.LabelRemoteClusterID, s.link.options.ClusterID)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// meta is that of a new ImportedService. It goes with the gateway.
func (s *Services) meta(name string) metav1.ObjectMeta {
	o := s.link.options
	m := metav1.ObjectMeta{Namespace: o.Namespace, Name: name, Labels: map[string]string{
		networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: o.ClusterID,
	}}
	owner := metav1.OwnerReference{APIVersion: networkingv1beta1.GroupVersion.String(), Name: o.Name, Kind: "Gateway" + string(o.Type)}
	if s.link.servers != nil {
		if g := s.link.servers.Only(); g != nil {
			owner.UID = g.UID
		}
	}
	if owner.UID == "" && s.link.gwClients != nil {
		if g := s.link.gwClients.Only(); g != nil {
			owner.UID = g.UID
		}
	}
	if owner.UID == "" {
		return m
	}
	m.OwnerReferences = []metav1.OwnerReference{owner}
	return m
}

// note logs the error of a round of writes once, and its end.
func (s *Services) note(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == s.failed || ctx.Err() != nil {
		return
	}
	s.failed = text
	if err != nil {
		s.log.Warn("Services of the peer cannot be written, trying again", "error", text)
	} else {
		s.log.Info("Services of the peer are written again")
	}
}
