// Package bundle packs everything that a problem report needs from one cluster or
// two into one archive, and nothing that is secret.
//
//	access.Cluster --> gather --> clean, scrub --> archive --> .tar.gz
//
// No Secret is read. Other secrets are kept out twice. What is read is cut down by its
// structure (clean.go): of environment variables the names are kept, of ConfigMaps that
// are not ours the names of the entries, of annotations those whose meaning is known.
// Then every text that gets into the archive, logs above all, is searched for what looks
// like a secret, and for the values of environment variables with a telling name
// (scrub.go). Public keys and IP addresses stay: most problems cannot be understood
// without them.
//
// What cannot be read is noted in the archive, and the rest is packed. The same
// input gives the same bytes.
package bundle
