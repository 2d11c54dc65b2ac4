// Package bootstrap makes the objects that an installation begins with, and keeps
// them existing: the ConfigMap with the ID of the cluster, and the Networks that
// say which prefixes the cluster uses itself.
//
// What is there is never changed, whoever made it: a chart, an earlier version
// or a person. What is missing is made of the options; what is deleted comes
// back. The decision, [Build], is pure.
package bootstrap
