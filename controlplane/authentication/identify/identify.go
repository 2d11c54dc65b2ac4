// Package identify tells who this cluster is to others: its ID and its key.
package identify

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// The ConfigMap of the ID of this cluster.
const (
	configMap = "liqo-clusterid-configmap"
	idKey     = "CLUSTER_ID"
)

// Cluster is this cluster.
type Cluster struct {
	// Client writes and Reader reads past every cache.
	Client client.Client
	Reader client.Reader
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
}

// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=liqo-clusterid-configmap,verbs=get,namespace=liqo
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=liqo
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=authentication-keys,verbs=get,namespace=liqo

// ID is the ID of this cluster.
func (c Cluster) ID(ctx context.Context) (string, error) {
	var m corev1.ConfigMap
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.LiqoNamespace, Name: configMap}, &m); err != nil {
		return "", fmt.Errorf("get the ID of this cluster: %w", err)
	}
	if m.Data[idKey] == "" {
		return "", fmt.Errorf("ConfigMap %s/%s has no %s", c.LiqoNamespace, configMap, idKey)
	}
	return m.Data[idKey], nil
}

// Key is the key of this cluster. It is made when it is needed first. One that does not parse is an error: whoever put
// it there wants another one than we would make.
func (c Cluster) Key(ctx context.Context) (credentials.Key, error) {
	s := new(corev1.Secret)
	name := client.ObjectKey{Namespace: c.LiqoNamespace, Name: authv1beta1.KeysSecret}
	err := c.Reader.Get(ctx, name, s)
	if apierrors.IsNotFound(err) {
		if s, err = c.makeKey(name); err == nil {
			err = c.Client.Create(ctx, s)
		}
		if apierrors.IsAlreadyExists(err) {
			err = c.Reader.Get(ctx, name, s)
		}
	}
	if err != nil {
		return credentials.Key{}, fmt.Errorf("get the key of this cluster: %w", err)
	}
	k, err := credentials.ParseKey(s.Data[authv1beta1.PrivateKey])
	if err != nil {
		return credentials.Key{}, fmt.Errorf("read %s of Secret %s: %w", authv1beta1.PrivateKey, name, err)
	}
	return k, nil
}

func (c Cluster) makeKey(name client.ObjectKey) (*corev1.Secret, error) {
	k, err := credentials.GenerateKey()
	if err != nil {
		return nil, err
	}
	private, err := k.MarshalPrivate()
	public, err2 := k.MarshalPublic()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name,
			Labels: map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue},
		},
		Data: map[string][]byte{authv1beta1.PrivateKey: private, authv1beta1.PublicKey: public},
	}, nil
}
