// Package manifests reads the objects of a peering from a directory of YAML
// files, as a cluster would hold them, and watches it. The gateway and the node
// agent read the same directory, each what it uses:
//
//	DIR/*.yaml -> ReadFiles -> Files.Decode -> Objects, warnings, Problems
//	DIR/status/ <- WriteStatus, UpdateStatus
//
// Objects and Problems serve those who read from an API server as well (package
// mirror), so that what is built from them is built in one way.
//
// What it is not: it judges form, not meaning, applies no defaults and gives no
// object an identity beyond kind, namespace and name.
//
// # Every problem, and where
//
// Decoding goes on after a mistake, so that all of them are told at once, each
// with its file, line and field. A kind of ours that the reader does not use is
// checked all the same: a typo is one whoever reads first. It is not kept, and a
// Secret is not even looked at by those who have no use for keys.
//
// # Nothing of a key in a message
//
// Whatever may be key material is hidden, wherever it stands: see Problem.Masked.
package manifests
