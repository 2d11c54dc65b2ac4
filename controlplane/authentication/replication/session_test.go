package replication

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestEnd: a session that has ended has left nothing running. Its successor would share the client and the wake-up.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		slow := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build(), interceptor.Funcs{
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				<-answers // an API server that does not answer
				return nil, errors.New("no")
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		s := newSession(between, copied, fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build(), slow, logr.Discard(), func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.run(ctx)
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it has ended, and still watches")
		default:
		}
		close(answers)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it does not end")
		}
	})
}
