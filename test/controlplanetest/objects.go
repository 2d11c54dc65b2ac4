package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/deploy"
)

// Create creates objects.
func (c *Cluster) Create(tb testing.TB, objects ...client.Object) {
	tb.Helper()
	for _, o := range objects {
		write(tb, "create", o, func(ctx context.Context) error { return c.Client.Create(ctx, o) })
	}
}

// Delete deletes an object, which must be there.
func (c *Cluster) Delete(tb testing.TB, o client.Object, options ...client.DeleteOption) {
	tb.Helper()
	write(tb, "delete", o, func(ctx context.Context) error { return c.Client.Delete(ctx, o, options...) })
}

func write(tb testing.TB, verb string, o client.Object, request func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience) // also in a Cleanup, where the test's own is over
	defer cancel()
	if err := request(ctx); err != nil {
		tb.Fatalf("%s %T %s: %v", verb, o, client.ObjectKeyFromObject(o), err)
	}
}

// Read reads an object that must be there.
func (c *Cluster) Read(tb testing.TB, namespace, name string, into client.Object) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := c.Get(ctx, namespace, name, into); err != nil {
		tb.Fatalf("read %T %s/%s: %v", into, namespace, name, err)
	}
}

// Gone waits until there are no such objects.
func (c *Cluster) Gone(tb testing.TB, objects ...client.Object) {
	tb.Helper()
	for _, o := range objects {
		key := client.ObjectKeyFromObject(o)
		Eventually(tb, fmt.Sprintf("%T %s is gone", o, key), func(ctx context.Context) error {
			err := c.Client.Get(ctx, key, o)
			if err == nil {
				return errors.New("it is there")
			}
			return client.IgnoreNotFound(err)
		})
	}
}

// Namespace is CreateNamespace for tests that need it.
func (c *Cluster) Namespace(tb testing.TB, name string, labels map[string]string) {
	tb.Helper()
	if err := c.CreateNamespace(name, labels); err != nil {
		tb.Fatalf("create namespace %s: %v", name, err)
	}
}

// Event waits for an event of the controllers about an object, of whose type and text, "Warning: this is why", says is
// a part.
func (c *Cluster) Event(tb testing.TB, namespace, about, reason, says string) {
	tb.Helper()
	Eventually(tb, "there is an event "+reason+" about "+about, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := c.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			text := e.Type + ": " + e.Note
			if e.ReportingController == Controller && e.Regarding.Name == about && e.Reason == reason && strings.Contains(text, says) {
				return nil
			}
			others = append(others, e.Regarding.Name+" "+e.Reason+" "+text)
		}
		return fmt.Errorf("there are %q", others)
	})
}

// ApplyManifest applies a file of deploy/manifests.
func (c *Cluster) ApplyManifest(tb testing.TB, path ...string) {
	tb.Helper()
	text, err := fs.ReadFile(deploy.Manifests(), strings.Join(path, "/"))
	if err != nil {
		tb.Fatal(err)
	}
	c.Apply(string(text))
}
