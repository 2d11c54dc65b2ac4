// Package peering connects two clusters and separates them again.
//
// A peering is a handful of objects in each cluster, in one namespace, the
// tenant namespace of the other:
//
//	local, the client                          remote, the server
//	Namespace      liqo-tenant-REMOTE          Namespace      liqo-tenant-LOCAL
//	Configuration  REMOTE: remote's CIDRs      Configuration  LOCAL: local's CIDRs
//	GatewayClient  REMOTE: where to dial       GatewayServer  LOCAL: how to be reached
//	PublicKey      REMOTE: remote's key        PublicKey      LOCAL: local's key
//
// objects.go makes these, without a cluster. The controllers of each cluster make
// everything else of them.
//
// # How it is done
//
// [Connect], [Init], [Disconnect] and [Reset] first check for all obstacles
// (preflight.go), and change nothing before that. Then they make a plan: the lines
// that the user reads, in their order (connect.go, disconnect.go). Each line is a
// step, in one cluster, that reads the objects, applies what is missing and reads
// again until there is nothing left to wait for (step.go). A step runs as soon as
// those that it depends on are done; output keeps its order (plan.go). So every
// command can be repeated, and continues where another run ended, however that
// ended.
//
// Existing objects are used as they are, whatever their names and namespaces, as long as
// their labels say that they are for the peer. Only what the [Options] say is changed.
//
// If a step cannot proceed, a [Failure] says what it waits for, what the objects,
// pods and events say about it, and what to do (clues.go reads, explain.go judges).
//
// The package holds no state of its own, creates no gateway pods, and shows nothing except
// through a progress.Func.
package peering
