// Package cidr chooses prefixes and addresses so that no two owners get the
// same space. It is arithmetic over plain values: no cluster, no I/O, no clock.
//
// [Addresses] hands out single addresses of one prefix.
//
// Owners are names that the caller chooses. What an owner holds is never
// changed: it is acquired, or restored after a restart, and later released.
//
// Nothing here is safe for concurrent use: a caller decides one thing after the
// other anyway, or two of them would be told the same.
package cidr
