package replication

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// records keep, for each place to which something is copied, the kubeconfig by which it can be taken back. An identity can
// go while no controller runs, or while its provider is away, and nothing else says then what is left there. The kubeconfig
// is kept in the namespace of the identity, where whoever may read the one may read the other, and goes when nothing is
// left to take back.
//
// Each tenant namespace has one Secret, with an entry for each place. It has a fixed name, by which the controller may
// delete it and no other.
type records struct {
	client.Client
	// live reads what no cache has.
	live client.Reader
	// mu is held over each change: who takes away the last entry deletes the Secret.
	mu sync.Mutex
}

// record is one entry.
type record struct {
	peer
	kubeconfig []byte
}

// recordKey is where the entry of a peer is. Neither part has a dot.
func (p peer) recordKey() string { return p.provider + "." + p.there }

// keep has the kubeconfig in the record of p. What is kept already is not written again.
func (r *records) keep(ctx context.Context, p peer, kubeconfig []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.read(ctx, p.here)
	if err != nil {
		return err
	}
	if s == nil {
		s = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: authv1beta1.CopiesSecret, Labels: map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}},
			Data:       map[string][]byte{p.recordKey(): kubeconfig},
		}
		if err := r.Create(ctx, s); err != nil {
			return fmt.Errorf("create Secret %s/%s: %w", s.Namespace, s.Name, err)
		}
		return nil
	}
	if bytes.Equal(s.Data[p.recordKey()], kubeconfig) {
		return nil
	}
	return r.patch(ctx, s, p.recordKey(), kubeconfig)
}

// drop takes away the entry of p.
func (r *records) drop(ctx context.Context, p peer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.read(ctx, p.here)
	if err != nil || s == nil {
		return err
	}
	if _, there := s.Data[p.recordKey()]; !there {
		return nil
	}
	if len(s.Data) > 1 {
		return r.patch(ctx, s, p.recordKey(), nil)
	}
	if err := r.Delete(ctx, s, client.Preconditions{UID: new(s.UID), ResourceVersion: new(s.ResourceVersion)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// kept tells whether there is an entry of p.
func (r *records) kept(ctx context.Context, p peer) (bool, error) {
	s, err := r.read(ctx, p.here)
	if err != nil || s == nil {
		return false, err
	}
	_, there := s.Data[p.recordKey()]
	return there, nil
}

// orphans are the records of which no identity knows, of the cluster with ID own.
func (r *records) orphans(ctx context.Context, own string) ([]record, error) {
	var kept, identities corev1.SecretList
	if err := r.live.List(ctx, &kept, client.MatchingFields{"metadata.name": authv1beta1.CopiesSecret}); err != nil {
		return nil, fmt.Errorf("list the records of copies: %w", err)
	}
	if len(kept.Items) == 0 {
		return nil, nil
	}
	if err := r.live.List(ctx, &identities, client.MatchingLabels{authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity)}); err != nil {
		return nil, fmt.Errorf("list identities: %w", err)
	}
	return orphans(kept.Items, identities.Items, own), nil
}

func orphans(kept, identities []corev1.Secret, own string) (out []record) {
	wanted := map[peer]bool{}
	for i := range identities {
		if s := &identities[i]; s.DeletionTimestamp.IsZero() {
			wanted[peerOf(s, own)] = true
		}
	}
	for i := range kept {
		s := &kept[i]
		if !isRecord(s) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			provider, there, _ := strings.Cut(key, ".")
			p := peer{consumer: own, provider: provider, here: s.Namespace, there: there}
			if !wanted[p] && len(validation.IsDNS1123Label(provider))+len(validation.IsDNS1123Label(there)) == 0 {
				out = append(out, record{p, s.Data[key]})
			}
		}
	}
	return out
}

// read returns the Secret of a namespace; nil: there is none.
func (r *records) read(ctx context.Context, namespace string) (*corev1.Secret, error) {
	s := new(corev1.Secret)
	err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: authv1beta1.CopiesSecret}, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get the record of copies: %w", err)
	case !isRecord(s):
		return nil, fmt.Errorf("the Secret %s/%s is not the controller's: give it another name, or what is copied cannot be taken back after a restart", s.Namespace, s.Name)
	}
	return s, nil
}

func isRecord(s *corev1.Secret) bool {
	return s.Name == authv1beta1.CopiesSecret && s.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue && s.DeletionTimestamp.IsZero()
}

// patch sets one entry; nil takes it away.
func (r *records) patch(ctx context.Context, s *corev1.Secret, key string, value []byte) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{key: value}})
	if err != nil {
		return err
	}
	if err := r.Patch(ctx, s, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
