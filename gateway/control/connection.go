package control

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/objects/manifests"
)

// connectionInterval is how long a Connection may show an old latency. A change
// of its value is written at once.
const connectionInterval = 10 * time.Second

var noLatency = health.FormatLatency(0)

// connectionFile keeps the Connection in a file, for readers who know the object
// from a cluster. It belongs to one goroutine.
type connectionFile struct {
	dir      string                       // of the manifests
	interval time.Duration                // how long it may show an old latency; zero: connectionInterval
	written  networkingv1beta1.Connection // zero: nothing yet
	at       time.Time                    // of the last write
}

// ConnectionOf is the Connection of a gateway, without what only a file or a cluster knows.
func ConnectionOf(g Gateway, status networkingv1beta1.ConnectionStatus) networkingv1beta1.Connection {
	apiVersion := networkingv1beta1.GroupVersion.String()
	return networkingv1beta1.Connection{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "Connection"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "gw-" + g.Name, Namespace: g.Namespace,
			Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: g.ClusterID},
		},
		Spec: networkingv1beta1.ConnectionSpec{
			Type:       g.Type,
			GatewayRef: corev1.ObjectReference{APIVersion: apiVersion, Kind: g.Kind, Name: g.Name, Namespace: g.Namespace},
		},
		Status: status,
	}
}

// Report implements Reporter.
func (f *connectionFile) Report(r Report) error {
	_, err := f.update(ConnectionOf(r.Gateway, r.ConnectionStatus()), r.Time)
	return err
}

// Withdraw implements Reporter. A directory has no replicas.
func (f *connectionFile) Withdraw() {}

// Close implements Reporter: Report has written everything.
func (f *connectionFile) Close() {}

// update writes c if it differs from the file in more than the latency, if there
// is a first latency, or if the file is old. It reports whether it wrote.
func (f *connectionFile) update(c networkingv1beta1.Connection, now time.Time) (bool, error) {
	if c.Name == f.written.Name && c.Namespace == f.written.Namespace &&
		c.Spec == f.written.Spec && c.Status.Value == f.written.Status.Value &&
		(c.Status.Latency.Value == noLatency) == (f.written.Status.Latency.Value == noLatency) &&
		c.Labels[networkingv1beta1.LabelRemoteClusterID] == f.written.Labels[networkingv1beta1.LabelRemoteClusterID] &&
		now.Sub(f.at) < cmp.Or(f.interval, connectionInterval) {
		return false, nil
	}
	c.CreationTimestamp = f.created(c, now)
	if err := manifests.WriteStatus(f.dir, manifests.ConnectionFile, c); err != nil {
		return false, fmt.Errorf("write Connection: %w", err)
	}
	f.written, f.at = c, now
	return true, nil
}

// created keeps the age of the Connection over a restart. Nothing else of an old
// file is of use: it says how things were.
func (f *connectionFile) created(c networkingv1beta1.Connection, now time.Time) metav1.Time {
	old := f.written
	if f.at.IsZero() {
		_ = manifests.ReadStatus(f.dir, manifests.ConnectionFile, &old) // unreadable: a new Connection
	}
	if old.Name == c.Name && old.Namespace == c.Namespace && !old.CreationTimestamp.IsZero() {
		return old.CreationTimestamp
	}
	return metav1.NewTime(now.UTC().Truncate(time.Second))
}
