package peering

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// ErrNotReady says that what was asked for does not exist yet although nothing is wrong: the
// controllers have not finished, or are not running.
var ErrNotReady = errors.New("not ready yet")

// LocalNetwork reads the CIDRs that a cluster uses itself, as its peers have to
// know them: spec.remote of the Configuration that they apply.
func LocalNetwork(ctx context.Context, c *access.Cluster) (networkingv1beta1.ClusterConfig, error) {
	var list ipamv1alpha1.NetworkList
	if err := c.Client.List(ctx, &list, client.InNamespace(c.LiqoNamespace), client.HasLabels{ipamv1alpha1.LabelNetworkType}); err != nil {
		return networkingv1beta1.ClusterConfig{}, c.Explain("list Networks in "+c.LiqoNamespace, err)
	}
	own, err := ownNetwork(c.LiqoNamespace, list.Items)
	if err != nil {
		return own, c.Errorf("%w", err)
	}
	return own, nil
}

// ownNetwork is what the Networks of an installation say of its CIDRs.
func ownNetwork(namespace string, networks []ipamv1alpha1.Network) (own networkingv1beta1.ClusterConfig, err error) {
	for _, part := range []struct {
		networkType string
		into        *networkingv1beta1.CIDRs
	}{
		{ipamv1alpha1.NetworkTypePodCIDR, &own.CIDR.Pod},
		{ipamv1alpha1.NetworkTypeExternalCIDR, &own.CIDR.External},
	} {
		for _, n := range networks {
			if n.Labels[ipamv1alpha1.LabelNetworkType] != part.networkType {
				continue
			}
			if n.Status.CIDR == "" {
				return networkingv1beta1.ClusterConfig{}, fmt.Errorf("the status of Network %s/%s has no prefix: %w: see 'kubectl -n %[1]s describe network %[2]s', and check whether the controllers are running",
					n.Namespace, n.Name, ErrNotReady)
			}
			part.into.List = append(part.into.List, networkingv1beta1.CIDR(n.Status.CIDR))
		}
		if len(part.into.List) == 0 {
			return networkingv1beta1.ClusterConfig{}, fmt.Errorf("there is no Network with the label %s=%s in namespace %s: %w: the controllers create it once the installation is complete",
				ipamv1alpha1.LabelNetworkType, part.networkType, namespace, ErrNotReady)
		}
		part.into.Scalar = len(part.into.List) == 1
	}
	return own, nil
}

// PublicKeyOf reads the public key of a gateway: 32 bytes. The error is
// ErrNotReady while the controllers have made no keys.
func PublicKeyOf(ctx context.Context, c *access.Cluster, end networkingv1beta1.ConnectionType, namespace, name string) ([]byte, error) {
	g := newGateway(end)
	what := fmt.Sprintf("%s %s/%s", g.kind(), namespace, name)
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, g.Object)
	if apierrors.IsNotFound(err) {
		kind := strings.ToLower(g.kind())
		return nil, c.Errorf("%s does not exist: 'liqoctl get %s -A' lists the existing ones, 'liqoctl create %s' creates one", what, kind, kind)
	}
	if err != nil {
		return nil, c.Explain("read "+what, err)
	}
	ref := g.status().keys
	if ref == nil {
		return nil, c.Errorf("%s has no status.secretRef, so it has no keys: %w: check its conditions, and whether the controllers are running", what, ErrNotReady)
	}
	if key := g.status().publicKey; len(key) == keyLen {
		return bytes.Clone(key), nil
	}
	// Controllers such as Liqo's do not report it.
	var secret corev1.Secret
	err = c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, c.Errorf("%s refers to Secret %s, which does not exist: %w: see its condition KeysReady", what, ref.Name, ErrNotReady)
	}
	if err != nil {
		return nil, c.Explain(fmt.Sprintf("read Secret %s/%s", namespace, ref.Name), err)
	}
	key, why := publicKey(secret.Data)
	if why != "" {
		return nil, c.Errorf("Secret %s/%s of %s %s", namespace, ref.Name, what, why)
	}
	return key, nil
}

// keyLen is the length of a Curve25519 key.
const keyLen = 32

// publicKey returns the public key of a pair, or says what is wrong with the pair.
// Nothing of the private key gets into the text.
func publicKey(data map[string][]byte) (key []byte, why string) {
	if given := data[networkingv1beta1.PublicKeyEntry]; len(given) == keyLen {
		return bytes.Clone(given), ""
	} else if len(given) > 0 {
		return nil, fmt.Sprintf("has a data.%s of %d bytes, but a key has %d: replace it, or leave it out", networkingv1beta1.PublicKeyEntry, len(given), keyLen)
	}
	private, err := ecdh.X25519().NewPrivateKey(data[networkingv1beta1.PrivateKeyEntry])
	if err != nil {
		return nil, fmt.Sprintf("has neither data.%s nor a data.%s of %d bytes: replace it, or delete it to have keys generated", networkingv1beta1.PublicKeyEntry, networkingv1beta1.PrivateKeyEntry, keyLen)
	}
	return private.PublicKey().Bytes(), ""
}
