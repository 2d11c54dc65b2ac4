package mirror

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Watched is what one watch selects.
type Watched struct {
	Client    rest.Interface
	Resource  string
	Namespace string // empty: all, or a kind without namespaces
	Labels    string // selectors; empty: everything
	Fields    string
}

// Name tells watches apart.
func (w Watched) Name() string {
	if w.Namespace == "" {
		return w.Resource
	}
	return w.Resource + " in " + w.Namespace
}

// backoff is the pause between attempts to open a watch.
var backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 5, Cap: 5 * time.Second, Jitter: 0.5}

// Follow keeps a store equal to what w selects, until ctx ends.
func Follow[T any, P Object[T]](ctx context.Context, w Watched, s *Store[T, P], c *Contact) {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = w.Labels, w.Fields
		// The reflector tries again. What the request would try itself, ten times with a second between, Contact would
		// learn of only at the end.
		return w.Client.Get().MaxRetries(0).NamespaceIfScoped(w.Namespace, w.Namespace != "").Resource(w.Resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // zero would get all pages at once
			}
			list, err := request(o).Do(ctx).Get()
			c.Note(w.Name(), err)
			if err == nil {
				s.stripList(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			events, err := request(o).Watch(ctx)
			c.Note(w.Name(), err)
			return events, err
		},
	}
	// What a reflector has to say is for those who debug it: Contact tells the rest.
	quiet := logr.FromSlogHandler(debugOnly{c.log.Handler()})
	pause := backoff
	r := cache.NewReflectorWithOptions(byPages{lw}, P(new(T)), s, cache.ReflectorOptions{Name: w.Name(), Logger: &quiet, Backoff: &pause})
	r.RunWithContext(logr.NewContext(ctx, quiet))
}

// byPages makes a reflector read lists by pages, each of which is trimmed when it
// comes. To have the list streamed by a watch, which is the default, needs no
// pages, but its end may come a second late, and programs start with it.
type byPages struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how a reflector asks.
func (byPages) IsWatchListSemanticsUnSupported() bool { return true }

// debugOnly lowers every record to the level of debugging, and drops those below
// it: whole requests and answers.
type debugOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h debugOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelDebug && h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler. logr hands over errors without having asked
// whether they are wanted.
func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	if !h.Handler.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h debugOnly) WithAttrs(a []slog.Attr) slog.Handler { return debugOnly{h.Handler.WithAttrs(a)} }

// WithGroup implements slog.Handler.
func (h debugOnly) WithGroup(name string) slog.Handler { return debugOnly{h.Handler.WithGroup(name)} }
