// Package cluster ties a gateway to the API server of its cluster: it is the
// Feed and the Reporter of package control there, and elects the active one among
// replicas.
//
//	API server --watches--> package mirror --Read--> control.Objects
//	keys folder ------------------/                        |
//	Connection, FirewallConfigurations <------Report---- Runner
//	Lease <--> Elector --> Runner.SetLeading
//
// # What is read
//
// Only what the Role of a gateway allows and what concerns its peer, by
// selectors where the API server has one, and of each object only what Build
// looks at. No Secret is read: the keys are mounted as files.
//
// # When the API server is unavailable
//
// What is in force stays, the watches are opened again, and the Connection is
// written when that is possible again.
//
// # Leading
//
// The election differs from client-go's in two rules: a leader goes on while the API
// server is away (see decide), if its peer is heard (see Unconfirmed), and one that ends frees the lease first and leads until
// another one has it (see HandOver), so that a replacement leaves no gap.
package cluster
