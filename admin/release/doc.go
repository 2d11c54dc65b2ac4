// Package release installs, upgrades and removes the installation of one cluster:
// the chart in this program, through Helm's library, so that Helm's own command
// sees the release and can go on with it.
//
// An installation is planned before anything is changed:
//
//	Gather    what the cluster tells           reads only
//	decide    values, and who says so          pure
//	preflight what is in the way               pure
//	Prepare   these, and the manifests         reads only
//	Apply     namespace, CRDs, release; waits until it works, and until the
//	          gateways that an upgrade replaces are back
//
// Every step of Apply, and of an uninstallation, finds out what there is and does
// the rest: both may be interrupted and repeated at any point. A repetition that
// finds everything as it should be writes nothing, not even a revision.
//
// The CRDs are none of the release's: Helm never updates them, and to delete them
// is to delete everything that users have made. They are applied before it, and
// stay after it unless they are to go.
package release
