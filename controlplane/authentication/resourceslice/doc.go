// Package resourceslice answers ResourceSlices, on both sides of a peering.
//
//	consumer: a slice that is to be copied (liqo.io/replication)  -> who asks whom, and a request for a certificate
//	provider: a copy (liqo.io/replicated)                         -> status: credentials, and what is granted
//
// All of a copy but its status was written by the consumer, and nothing in it is believed: who may ask is decided from
// the Tenant of its namespace. The role of a consumer does not let it write a status, which is what was granted.
package resourceslice
