// Package doctor finds out why two clusters are not connected, or badly connected.
// It reads the objects and the state of both, asks their gateways twice, pings
// through the tunnel, and judges these facts by a list of checks, in the order in
// which one depends on another:
//
//	Examine      gather (I/O) -> facts -> judge (pure) -> Report
//	checks.go    the list: name, what it needs, the function that judges
//	check_*.go   those functions
//
// If a check fails, those that depend on it are skipped: the first failure is the
// cause, the rest would be noise. The same holds for a check that could not read
// what it judges: an object that may not be read may exist. With one cluster
// instead of two, each check says as much as one side allows.
//
// To add a check: a function from facts to findings, and a line in the list. It
// changes nothing, and never sees a private key.
package doctor
