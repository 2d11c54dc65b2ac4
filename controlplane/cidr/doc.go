// Package cidr chooses prefixes and addresses so that no two owners get the
// same space. It is arithmetic over plain values: no cluster, no I/O, no clock.
//
// [Allocator] grants prefixes: the one asked for when it is free, else a free
// one of the same length out of a pool. [Addresses] hands out single addresses of
// one prefix. [Routable] tells what can be granted at all.
//
// Owners are names that the caller chooses. What an owner holds is never
// changed: it is acquired, or restored after a restart, and later released.
// Errors say what is in the way, by name; what to do about it is for the caller
// to say, who knows what its owners are.
//
// Nothing here is safe for concurrent use: a caller decides one thing after the
// other anyway, or two of them would be told the same.
package cidr
