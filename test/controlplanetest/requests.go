package controlplanetest

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Counting is a client that counts the requests by which it could change something.
type Counting struct {
	client.Client
	Writes atomic.Int64
}

// Create implements [client.Client].
func (c *Counting) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.Writes.Add(1)
	return c.Client.Create(ctx, o, opts...)
}

// Patch implements [client.Client].
func (c *Counting) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	c.Writes.Add(1)
	return c.Client.Patch(ctx, o, p, opts...)
}

// Delete implements [client.Client].
func (c *Counting) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.Writes.Add(1)
	return c.Client.Delete(ctx, o, opts...)
}

// Apply implements [client.Client].
func (c *Counting) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	c.Writes.Add(1)
	return c.Client.Apply(ctx, o, opts...)
}

// Status implements [client.Client].
func (c *Counting) Status() client.SubResourceWriter {
	c.Writes.Add(1) // asked for only to write
	return c.Client.Status()
}

// Patches counts the PATCH requests for a resource, "ips" say, that the API server has had.
func (c *Cluster) Patches(tb testing.TB, resource string) (sum int) {
	tb.Helper()
	out, err := c.Kubectl("get", "--raw", "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="`+resource+`"`) && strings.Contains(line, `verb="PATCH"`) {
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				tb.Fatal(err)
			}
			sum += int(n)
		}
	}
	return sum
}
