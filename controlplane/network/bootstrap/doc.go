// Package bootstrap makes the objects that an installation begins with, and keeps
// them existing: the ConfigMap with the ID of the cluster, and the Networks that
// say which prefixes the cluster uses itself.
//
// Existing objects are never changed, whoever made them: a chart, an earlier
// version or a person. Missing ones are made from the options; deleted ones are
// made again. The decision, [Build], is pure.
package bootstrap
