package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/node/fabric"
)

// serverAddresses are where API servers say that they are. The agent knows them
// by the address of a Service, which the node translates: a tunnel that took the
// true one would cut the agent off for good.
type serverAddresses struct {
	mu    sync.Mutex
	asked bool         // an API server has answered
	addrs []netip.Addr // sorted
}

const (
	// addressRetry lies between questions that are not answered, addressRefresh
	// between the others: of several API servers each time another one answers.
	addressRetry   = time.Second
	addressRefresh = 5 * time.Minute
)

func (s *serverAddresses) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *serverAddresses) reserved() (out []fabric.Reserved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.addrs {
		out = append(out, fabric.Reserved{Prefix: netip.PrefixFrom(a, a.BitLen()), What: "the API server"})
	}
	return out
}

// follow asks again and again until ctx ends.
func (s *serverAddresses) follow(ctx context.Context, api rest.Interface, changed func()) {
	for {
		pause := addressRetry
		if addrs, err := ask(ctx, api); err == nil {
			pause = addressRefresh
			if s.add(addrs) {
				changed()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// add notes an answer and tells whether it brings anything new. What was true
// once stays reserved: there are few API servers.
func (s *serverAddresses) add(addrs []netip.Addr) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.asked = !s.asked, true
	for _, a := range addrs {
		if i, found := slices.BinarySearchFunc(s.addrs, a, netip.Addr.Compare); !found {
			s.addrs, news = slices.Insert(s.addrs, i, a), true
		}
	}
	return news
}

// ask finds where the API server that answers is. One that does not say so, or
// not to us, has no such address.
func ask(ctx context.Context, api rest.Interface) (addrs []netip.Addr, err error) {
	text, err := api.Get().AbsPath("/api").Timeout(10 * time.Second).Do(ctx).Raw()
	if errors.As(err, new(*apierrors.StatusError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var v metav1.APIVersions
	if json.Unmarshal(text, &v) != nil {
		return nil, nil
	}
	for _, by := range v.ServerAddressByClientCIDRs {
		at, badPort := netip.ParseAddrPort(by.ServerAddress)
		a, bad := netip.ParseAddr(by.ServerAddress)
		if badPort == nil || bad == nil {
			addrs = append(addrs, cmp.Or(at.Addr(), a).Unmap())
		}
	}
	return addrs, nil
}
