// Package shadowendpointslice makes the EndpointSlices that consumers ask for, so that Services in their namespaces lead to
// pods of their own clusters too.
//
//	ShadowEndpointSlice -> judged, each address as this cluster knows it -> EndpointSlice, whose owner it is
//
// An EndpointSlice leads wherever it says, also past the rules that keep the consumer away from a place (CVE-2021-25740). So
// an address passes only if it is of the consumer's own pod or external CIDRs, as the Configuration of the peering has them,
// and what it is translated to belongs to nobody here. What else an endpoint says is on a list as well.
//
// While the network of the peering is down, or the consumer's API server known to be, endpoints stay and are not ready:
// the consumer is who would take them back.
package shadowendpointslice
