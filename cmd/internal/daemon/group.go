package daemon

import (
	"context"
	"fmt"
	"sync"
)

// Group runs the parts of a program together.
type Group struct {
	ctx  context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup
	once sync.Once
	err  error // set once, read after wg
}

// NewGroup returns a group without parts. The context ends with ctx, or when a
// part fails.
func NewGroup(ctx context.Context) (*Group, context.Context) {
	ctx, end := context.WithCancel(ctx)
	return &Group{ctx: ctx, end: end}, ctx
}

// Go runs a part. If it fails before the context has ended, all end.
func (g *Group) Go(name string, run func(context.Context) error) {
	g.wg.Go(func() {
		if err := run(g.ctx); err != nil && g.ctx.Err() == nil {
			g.once.Do(func() { g.err = fmt.Errorf("%s: %w", name, err) })
			g.end()
		}
	})
}

// Wait waits until all parts have ended. It returns the failure that ended them,
// nil if they were told to end.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.end()
	return g.err
}
