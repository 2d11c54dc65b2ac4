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
// [Connect], [Init], [Disconnect] and [Reset] first find out all that stands in
// the way (preflight.go), and change nothing before that. Then they make a plan:
// the list of what the user reads, in its order (connect.go, disconnect.go). Each
// line is a step, in one cluster, that looks at the world, applies what is missing
// and looks again until there is nothing left to wait for (step.go). Steps run as
// soon as those are over that they come after; what the user reads keeps its order
// (plan.go). So every command may be repeated, and goes on where another run ended,
// however that ended.
//
// What is there is used as it is found, under whatever name and in whatever
// namespace, as long as its label says that it is for the peer. Only what the
// [Options] say is changed.
//
// Where it does not go on, a [Failure] tells what is waited for, what the objects,
// pods and events say about it, and what to do (clues.go reads, explain.go judges).
//
// What it is not: it holds no state of its own, makes no gateway, and shows nothing
// to anybody but through a progress.Func.
package peering
