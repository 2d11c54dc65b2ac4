// Package configuration reconciles Configurations: it fills in the CIDRs of this
// cluster, and writes those by which this cluster reaches the remote one into the
// status.
//
//	Configuration c   spec.local  <── Networks of the installation, unless it is given
//	                  spec.remote ──> Networks c-pod-10-243-0-0-16, c-external-10-70-0-0-16
//	                  status.remote <── what these Networks are granted
//
// The reconciler reads (gather), decides (Build, which is pure: plan.go) and writes
// (reconcile.go). What it is not: it grants no prefix; that is the business of the
// reconciler of Networks.
//
// # What a reader may rely on
//
// status.remote has the order and the shape, a CIDR or a list, of spec.remote. It
// counts while the condition NetworkCIDRsConfigured is True with the
// observedGeneration of the object. Where a Network is lost and comes back, it
// stays as it was meanwhile; where spec.remote changes, it is emptied.
//
// spec.local is filled in once, when it is empty. To have it filled in again, after
// the cluster got another pod CIDR, remove it.
package configuration
