package peering_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestRotationReadsNoKeys replaces the keys of both sides, of which a gateway does not answer at first. Nothing that the
// administrator's machine is sent has a key in it.
func TestRotationReadsNoKeys(t *testing.T) {
	t.Parallel()
	var local, remote *side
	var silent atomic.Int32
	local = startSideWith(t, reporting(&local, &silent), access.Local, "rome")
	remote = startSideWith(t, reporting(&remote, &silent), access.Remote, "milan")
	local.play(t, networkingv1beta1.Connected)
	remote.play(t, networkingv1beta1.Connected)
	var s told
	if err := peering.Connect(t.Context(), local.access, remote.access, options(), s.tell); err != nil {
		t.Fatal(err)
	}
	former := map[*side]string{}
	for _, s := range []*side{local, remote} {
		former[s] = s.peerKey(t)
	}
	s = told{}
	silent.Store(2)
	if err := peering.RotateKeys(t.Context(), local.access, remote.access, peering.RotateOptions{Timeout: 5 * controlplanetest.Patience}, s.tell); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(s.lines, "\n"))
	}
	if n := silent.Load(); n > 0 {
		t.Errorf("no gateway was asked the last %d times that it was to be silent", n)
	}
	for s, key := range former {
		if s.peerKey(t) == key {
			t.Errorf("%s knows its peer by the former key", s.id)
		}
		if n := s.forSecrets.Load(); n != 0 {
			t.Errorf("%d requests for Secrets of %s", n, s.id)
		}
	}
	testKeys(t, local, remote)
}

// peerKey is the key of the peer that a side knows.
func (s *side) peerKey(t *testing.T) string {
	t.Helper()
	key, err := s.knownKey(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return string(key)
}

func (s *side) knownKey(ctx context.Context, namespace string) ([]byte, error) {
	var list networkingv1beta1.PublicKeyList
	if err := s.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%s has %d PublicKeys", s.id, len(list.Items))
	}
	return list.Items[0].Spec.PublicKey, nil
}

// reporting is a gateway that says that it has just had a handshake with the key that its side knows. It says nothing as often
// as silent tells.
func reporting(s **side, silent *atomic.Int32) controlplanetest.Image {
	return controlplanetest.Image{Exec: func(ctx context.Context, pod *corev1.Pod, _ []string, stdout, stderr io.Writer) int {
		if silent.Add(-1) >= 0 {
			fmt.Fprintln(stderr, "no answer in time")
			return 1
		}
		key, err := (*s).knownKey(ctx, pod.Namespace)
		var r survey.GatewayReport
		r.DataPlane.Tunnel.Peer, r.DataPlane.Tunnel.LastHandshake = base64.StdEncoding.EncodeToString(key), time.Now()
		if err = errors.Join(err, json.NewEncoder(stdout).Encode(r)); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}}
}
