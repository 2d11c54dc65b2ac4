package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// KeptFile is where a gateway keeps the objects by which it works, in Options.CacheDir.
const KeptFile = "objects.json"

const (
	// keptFormat changes with the meaning of the file.
	keptFormat = 1
	// maxKept bounds the file; the routes to a hundred thousand pods take a third of it.
	maxKept = 64 << 20
	// keptAfter is how long the API server may take at a start before the gateway works
	// by what was kept.
	keptAfter = time.Second
	// keptPause lies between two writes at least, and keptShare bounds what they cost, as
	// a part of one processor.
	keptPause, keptShare = time.Second, 100
)

// keptFile keeps the objects by which a gateway works in a file that outlives its
// container, so that one that is started again while the API server is away goes on
// as it was. The file holds what any reader of the peering's objects can read. The
// private key is not in it: like every start, this one takes it from the Secret, which
// the kubelet keeps mounted, in memory.
type keptFile struct {
	path  string // empty: nothing is kept
	owner keptOwner
	log   *slog.Logger
	dirty chan struct{} // one slot

	mu      sync.Mutex
	objects manifests.Objects
	lease   *coordinationv1.Lease // nil: no election, or it is not known
	at      time.Time             // when the objects were the newest; zero: there are none
	err     error                 // of the last write
}

// keptOwner is whose objects they are: a file of another gateway is none.
type keptOwner struct {
	Name, Namespace, Mode, UID, RemoteClusterID string
}

// newKeptFile also returns what another process of this gateway has kept.
func newKeptFile(o Options) (*keptFile, kept) {
	k := &keptFile{
		owner: keptOwner{o.Name, o.Namespace, string(o.Type), o.UID, o.ClusterID}, log: o.Logger, dirty: make(chan struct{}, 1),
	}
	if o.CacheDir == "" {
		return k, kept{}
	}
	k.path = filepath.Join(o.CacheDir, KeptFile)
	before := k.read()
	k.lease = before.Lease
	return k, before
}

// keep takes objects that are in force.
func (k *keptFile) keep(o manifests.Objects, now time.Time) {
	k.mu.Lock()
	k.objects, k.at = o, now
	k.mu.Unlock()
	k.wake()
}

// keepLease takes the lease as it is known, for its holder.
func (k *keptFile) keepLease(l *coordinationv1.Lease) {
	k.mu.Lock()
	changed := holderOf(l) != holderOf(k.lease)
	k.lease = l
	k.mu.Unlock()
	if changed {
		k.wake()
	}
}

func (k *keptFile) wake() {
	select {
	case k.dirty <- struct{}{}:
	default: // a write is due already
	}
}

// run writes what was given, until ctx ends.
func (k *keptFile) run(ctx context.Context) {
	if k.path == "" {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.dirty:
		}
		used := cost(func() { k.note(k.write()) })
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(keptPause, keptShare*used)):
		}
	}
}

// cost is for how long a function keeps a processor busy. Beside other work it takes far longer, and what has changed
// since must not wait for a hundred times that.
func cost(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	f()
	return threadTime() - before
}

// threadTime is what this thread has used of a processor (clock_gettime(2)).
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// note logs an error once, and its end.
func (k *keptFile) note(err error) {
	k.mu.Lock()
	before := k.err
	k.err = err
	k.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		k.log.Warn("cannot keep the objects: a restart while the API server is away would interrupt the traffic", "error", err)
	case err == nil && before != nil:
		k.log.Info("the objects are kept again", "file", k.path)
	}
}

// write replaces the file as a whole, or not at all.
func (k *keptFile) write() (err error) {
	k.mu.Lock()
	objects, lease, at := k.objects, k.lease, k.at
	k.mu.Unlock()
	if at.IsZero() {
		return nil
	}
	f, err := os.OpenFile(k.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	// A disk that fills up would be the end of more than this pod.
	w := bufio.NewWriter(&limitedWriter{w: f, left: maxKept})
	err = errors.Join(encodeKept(w, keptHeader{keptFormat, k.owner, at, lease}, &objects), w.Flush(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), k.path)
}

// limitedWriter refuses what is too much.
type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, fmt.Errorf("they take more than %d MiB", maxKept>>20)
	}
	return l.w.Write(b)
}

// read returns what is in the file if it is this gateway's; zero: nothing.
func (k *keptFile) read() kept {
	f, err := os.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}
	}
	if err != nil {
		k.log.Warn("cannot read the objects that were kept", "error", err)
		return kept{}
	}
	defer f.Close()
	out, err := decodeKept(io.LimitReader(f, maxKept))
	switch {
	case err != nil:
		k.log.Warn("cannot read the objects that were kept", "file", k.path, "error", err)
	case out.Format != keptFormat || out.Owner != k.owner:
		k.log.Info("the objects that were kept are another gateway's, or another version's", "file", k.path)
	default:
		return out
	}
	return kept{}
}

// keptHeader is the first line of the file.
type keptHeader struct {
	Format int
	Owner  keptOwner
	At     time.Time
	Lease  *coordinationv1.Lease
}

// kept is the content of the file. Without a time it is nothing.
type kept struct {
	keptHeader
	Objects manifests.Objects
}

// keptLine is one object. They are written one by one: all of them at once would take
// as much memory again.
type keptLine struct {
	Kind   string
	Object json.RawMessage
}

// keptEnd is the Kind of the last line.
const keptEnd = "End"

func encodeKept(w io.Writer, h keptHeader, o *manifests.Objects) error {
	e := json.NewEncoder(w)
	if err := e.Encode(h); err != nil {
		return err
	}
	for name, kind := range keptKinds {
		err := kind.each(o, func(object any) error {
			b, err := json.Marshal(object)
			if err != nil {
				return err
			}
			return e.Encode(keptLine{name, b})
		})
		if err != nil {
			return err
		}
	}
	return e.Encode(keptLine{Kind: keptEnd})
}

func decodeKept(r io.Reader) (out kept, err error) {
	d := json.NewDecoder(bufio.NewReader(r))
	if err := d.Decode(&out.keptHeader); err != nil {
		return out, err
	}
	for {
		var line keptLine
		if err := d.Decode(&line); err != nil {
			return out, err // the end must have been marked
		}
		if line.Kind == keptEnd {
			return out, nil
		}
		kind, ok := keptKinds[line.Kind]
		if !ok {
			return out, fmt.Errorf("an object of an unknown kind, %q", line.Kind)
		}
		if err := kind.add(&out.Objects, line.Object); err != nil {
			return out, err
		}
	}
}

// keptKind is how objects of one kind get out of a list and into it.
type keptKind struct {
	each func(*manifests.Objects, func(any) error) error
	add  func(*manifests.Objects, []byte) error
}

// keptKinds are all that a gateway reads, but for Secrets.
var keptKinds = map[string]keptKind{
	"GatewayServer": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.GatewayServer] {
		return &o.GatewayServers
	}),
	"GatewayClient": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.GatewayClient] {
		return &o.GatewayClients
	}),
	"PublicKey": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.PublicKey] { return &o.PublicKeys }),
	"Configuration": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.Configuration] {
		return &o.Configurations
	}),
	"InternalFabric": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.InternalFabric] {
		return &o.InternalFabrics
	}),
	"InternalNode": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.InternalNode] {
		return &o.InternalNodes
	}),
	"GeneveTunnel": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.GeneveTunnel] {
		return &o.GeneveTunnels
	}),
	"RouteConfiguration": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.RouteConfiguration] {
		return &o.RouteConfigurations
	}),
	"FirewallConfiguration": keptList(func(o *manifests.Objects) *[]manifests.Sourced[networkingv1beta1.FirewallConfiguration] {
		return &o.FirewallConfigurations
	}),
	"IP": keptList(func(o *manifests.Objects) *[]manifests.Sourced[ipamv1alpha1.IP] { return &o.IPs }),
}

func keptList[T any](list func(*manifests.Objects) *[]manifests.Sourced[T]) keptKind {
	return keptKind{
		each: func(o *manifests.Objects, do func(any) error) error {
			for _, s := range *list(o) {
				if err := do(s.Object); err != nil {
					return err
				}
			}
			return nil
		},
		add: func(o *manifests.Objects, b []byte) error {
			object := new(T)
			if err := json.Unmarshal(b, object); err != nil {
				return err
			}
			*list(o) = append(*list(o), manifests.Sourced[T]{Object: object})
			return nil
		},
	}
}
