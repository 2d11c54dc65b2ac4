// Package cluster ties a node agent to the API server of its cluster: it is the
// Feed and the Reporter of package fabric there.
//
//	API server --watches--> stores --Read--> manifests.Objects -> fabric.Runner
//	InternalNode status <--merge patch, only when it differs-- Report
//
// # What is read
//
// The agent runs on every node, so whatever one agent reads, a thousand read.
// Selectors restrict it where they can: the GeneveTunnels of this node by their label, its
// InternalNode by name. Of each object only what fabric.Build looks at is kept.
//
// # When the API server is unavailable
//
// What is in force stays, and what somebody changes on the node is restored from
// the objects that were read before.
package cluster
