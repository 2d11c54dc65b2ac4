// Package cluster ties a node agent to the API server of its cluster: it is the
// Feed and the Reporter of package fabric there.
//
//	API server --watches--> stores --Read--> manifests.Objects -> fabric.Runner
//	InternalNode status <--merge patch, only when it differs-- Report
//
// # What is read
//
// The agent runs on every node, so that what one reads a thousand read. Selectors
// say what they can: the GeneveTunnels of this node by their label, its
// InternalNode by name. Of each object only what fabric.Build looks at is kept.
//
// # An API server that is away
//
// changes nothing: what is in force stays, and what somebody tampers with is put
// right by what was read before.
package cluster
