package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/objects/manifests"
)

// servicesFilePause is the pause after what took so long for the file: a peer that changes Services for ever gets one part
// in fifty of a processor, and no more than a write in a second. A disk that hangs delays the next write by a minute at most.
func servicesFilePause(took time.Duration) time.Duration {
	return min(max(time.Second, 50*took), time.Minute)
}

// filedServices are the Services of the peer of a gateway outside clusters: in a file, for the DNS server.
type filedServices struct {
	*services.Exchange
	dir     string
	log     *slog.Logger
	changed chan struct{} // one slot: what the peer tells has changed
}

func newFiledServices(n services.Network, dir string, log *slog.Logger) *filedServices {
	f := &filedServices{dir: dir, log: log, changed: make(chan struct{}, 1)}
	f.Exchange = services.New(services.Options{Network: n, Logger: log, Changed: f.poke})
	return f
}

func (f *filedServices) poke() {
	select {
	case f.changed <- struct{}{}:
	default: // the file will be written anyway
	}
}

// Run exchanges Services until ctx ends.
func (f *filedServices) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { f.write(ctx) })
	defer wg.Wait()
	return f.Exchange.Run(ctx)
}

// write keeps the file equal to what was heard. While the peer is away it stays as it is, over restarts, too.
func (f *filedServices) write(ctx context.Context) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		begin := time.Now()
		if imported, all := f.Imported(); all {
			_, err := manifests.UpdateStatus(f.dir, manifests.ServicesFile, listOf(imported))
			if err != nil && !failed {
				f.log.Warn("the Services of the peer cannot be written", "error", err)
			}
			if failed = err != nil; failed {
				f.poke() // tried again
			}
		}
		if !services.Pause(ctx, servicesFilePause(time.Since(begin))) {
			return
		}
	}
}

// listOf is what was heard as objects, sorted.
func listOf(imported map[string]*networkingv1beta1.ServiceDescription) networkingv1beta1.ImportedServiceList {
	list := networkingv1beta1.ImportedServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: "ImportedServiceList"}, Items: []networkingv1beta1.ImportedService{},
	}
	for name, d := range imported {
		list.Items = append(list.Items, networkingv1beta1.ImportedService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *d})
	}
	slices.SortFunc(list.Items, func(a, b networkingv1beta1.ImportedService) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
