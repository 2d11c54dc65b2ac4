package services

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// A description is what is known of one Service. It is never changed.
type description = *networkingv1beta1.ServiceDescription

// offer is what is told to the peer. It is never changed, only replaced.
type offer struct {
	puts      map[string][]byte // payloads, by name
	from      map[string]*networkingv1beta1.ExportedService
	endpoints int
	bytes     int // of puts
	// left says what is left out, and why.
	left []string
}

// newOffer builds an offer of the objects. Of more than the peer takes, the oldest exports count. What has not changed
// since before is taken from there.
func newOffer(objects []*networkingv1beta1.ExportedService, before offer) offer {
	o := offer{puts: make(map[string][]byte, len(objects)), from: make(map[string]*networkingv1beta1.ExportedService, len(objects))}
	byAge := slices.SortedFunc(slices.Values(objects), func(a, b *networkingv1beta1.ExportedService) int {
		return cmp.Or(a.Spec.ExportedAt.Compare(b.Spec.ExportedAt.Time), cmp.Compare(a.Spec.ObjectName(), b.Spec.ObjectName()))
	})
	for _, e := range byAge {
		name := e.Spec.ObjectName()
		n := e.Spec.Endpoints()
		put, known := before.puts[name], before.from[name] == e
		var err error
		switch _, twice := o.puts[name]; {
		case twice:
			err = fmt.Errorf("another ExportedService is of the same Service")
		case len(o.puts) == networkingv1beta1.MaxServices:
			err = fmt.Errorf("%d Services of a peering are exported, no more", networkingv1beta1.MaxServices)
		case o.endpoints+n > networkingv1beta1.MaxServiceEndpointsTotal:
			err = fmt.Errorf("all exported Services of a peering together have %d endpoints, no more", networkingv1beta1.MaxServiceEndpointsTotal)
		case !known:
			if err = e.Spec.Check(); err == nil {
				put, err = encodePut(&e.Spec)
			}
		}
		if err == nil && o.bytes+len(put) > networkingv1beta1.MaxServiceSizeTotal {
			err = fmt.Errorf("all exported Services of a peering together have %d bytes, no more", networkingv1beta1.MaxServiceSizeTotal)
		}
		if err != nil {
			o.left = append(o.left, fmt.Sprintf("ExportedService %s: %v", e.Name, err))
			continue
		}
		o.puts[name], o.from[name] = put, e
		o.endpoints += n
		o.bytes += len(put)
	}
	return o
}

// told is what the peer was told over one connection.
type told struct {
	puts   map[string][]byte
	synced bool
}

// frames appends what the peer has to be told until it knows the offer, and takes it as told.
func (t *told) frames(b []byte, o offer) []byte {
	for _, name := range slices.Sorted(maps.Keys(t.puts)) {
		if _, stays := o.puts[name]; !stays {
			b = appendFrame(b, kindDelete, []byte(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.puts)) {
		if put := o.puts[name]; !bytes.Equal(put, t.puts[name]) {
			b = appendFrame(b, kindPut, put)
		}
	}
	if t.puts = o.puts; !t.synced {
		b, t.synced = appendFrame(b, kindSynced, nil), true
	}
	return b
}

// remote is what the peer has told of its Services. The zero value: nothing.
type remote struct {
	// settled is what counts: what was told until the last synced, and every change of that since then. Nil: nothing was
	// ever told to the end.
	settled map[string]description

	now       map[string]description // told over this connection
	endpoints int                    // of now
	sizes     map[string]int         // bytes of what was told, by name
	bytes     int                    // their sum
	synced    bool                   // settled is now
}

// begin starts a new connection. What was settled stays until all is told anew.
func (r *remote) begin() {
	r.now, r.endpoints, r.synced = map[string]description{}, 0, false
	r.sizes, r.bytes = map[string]int{}, 0
}

// take takes one frame. Changed tells whether settled did. An error is a *Refusal; with ReasonInvalid the Service is
// left out and the rest goes on.
func (r *remote) take(k kind, payload []byte) (changed bool, err error) {
	switch k {
	case kindPut:
		name, d, err := decodePut(payload)
		if reasonOf(err) == ReasonInvalid {
			return r.remove(name), err // what it was is not known to hold any more
		}
		if err != nil {
			return false, err
		}
		return r.put(name, d, len(payload))
	case kindDelete:
		if name := string(payload); isName(name) {
			return r.remove(name), nil
		}
		return false, refuse(ReasonMalformed, "a delete without the name of a Service")
	case kindSynced:
		if r.synced {
			return false, nil
		}
		r.settled, r.synced = r.now, true
		return true, nil
	}
	return false, nil
}

func (r *remote) put(name string, d description, size int) (changed bool, err error) {
	was, known := r.now[name]
	size += r.bytes - r.sizes[name]
	n := r.endpoints + d.Endpoints()
	if known {
		n -= was.Endpoints()
	}
	switch {
	case !known && len(r.now) == networkingv1beta1.MaxServices:
		return false, refuse(ReasonTooManyServices, "more than %d", networkingv1beta1.MaxServices)
	case n > networkingv1beta1.MaxServiceEndpointsTotal:
		return false, refuse(ReasonTooManyEndpoints, "more than %d", networkingv1beta1.MaxServiceEndpointsTotal)
	case size > networkingv1beta1.MaxServiceSizeTotal:
		return false, refuse(ReasonTooLarge, "all Services together have more than %d bytes", networkingv1beta1.MaxServiceSizeTotal)
	}
	r.sizes[name] += size - r.bytes
	r.bytes = size
	if known && equality.Semantic.DeepEqual(was, d) {
		return false, nil
	}
	r.now[name], r.endpoints = d, n
	return r.synced, nil
}

func (r *remote) remove(name string) (changed bool) {
	d, known := r.now[name]
	if !known {
		return false
	}
	delete(r.now, name)
	r.endpoints -= d.Endpoints()
	r.bytes -= r.sizes[name]
	delete(r.sizes, name)
	return r.synced
}

// Write is one write that makes the ImportedServices what is wanted.
type Write struct {
	Name string
	// Spec is what the object shall say; nil: it shall not be there.
	Spec *networkingv1beta1.ServiceDescription
	// Live is the object that is there; nil: none.
	Live *networkingv1beta1.ImportedService
}

// Differ finds what there is to write. It remembers what it has found to be the same: neither a description nor an object is
// ever changed, and of thousands few are replaced between two looks.
type Differ struct {
	same map[string]pair
}

// pair is a description and the object that says it.
type pair struct {
	wanted *networkingv1beta1.ServiceDescription
	live   *networkingv1beta1.ImportedService
}

// Writes compares what is wanted with what is there. What goes comes last, so that a Service that moves is never away.
func (d *Differ) Writes(wanted map[string]*networkingv1beta1.ServiceDescription, live []*networkingv1beta1.ImportedService) (out []Write) {
	there := make(map[string]*networkingv1beta1.ImportedService, len(live))
	for _, l := range live {
		there[l.Name] = l
	}
	known := make(map[string]pair, len(wanted))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		now := pair{wanted[name], there[name]}
		if now.live == nil || d.same[name] != now && !equality.Semantic.DeepEqual(&now.live.Spec, now.wanted) {
			out = append(out, Write{Name: name, Spec: now.wanted, Live: now.live})
			continue
		}
		known[name] = now
	}
	d.same = known
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if wanted[name] == nil {
			out = append(out, Write{Name: name, Live: there[name]})
		}
	}
	return out
}
