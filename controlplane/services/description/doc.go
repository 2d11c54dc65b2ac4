// Package description is what the exporter and the importer of Services agree on: how a Service of this cluster is
// described, which descriptions of others are taken, and which names are never used for either.
package description
