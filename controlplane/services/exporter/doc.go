// Package exporter tells peers of the Services of this cluster that users export.
//
//	ServiceExport + Service + EndpointSlices -> an ExportedService in the tenant namespace of each peering
//
// The ServiceExport of sigs.k8s.io/mcs-api is the user's word; the gateway of each peering reads the ExportedServices in its
// own namespace and tells the peer's gateway through the tunnel. What becomes of the export is in the conditions of the
// ServiceExport. Peers get addresses of pods only: whoever may export a Service opens nothing else of the cluster to them.
//
// A ServiceExport of a Service that is imported makes this cluster a hub, if operators allow that: it passes on the endpoints
// of one peer to the others, under addresses of its own external CIDR, for each of which it makes an IP. What it passes on it
// takes from what the gateway heard, the ImportedServices, and judges it as the importer does.
package exporter
