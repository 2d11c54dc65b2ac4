// Package doctor finds out why two clusters are not connected, or not well. It
// reads what both say of themselves, asks their gateways twice, pings through the
// tunnel, and judges all of it by a list of checks, in the order in which one
// depends on another:
//
//	Examine      gather (I/O) -> facts -> judge (pure) -> Report
//	checks.go    the list: name, what it needs, the function that judges
//	check_*.go   those functions
//
// A check that fails keeps those that depend on it from being judged: the first
// failure is the cause, the rest would be noise. So does one that could not read
// what it judges: what nobody could see may be there. With one
// cluster instead of two, each check says as much as one side allows.
//
// To add a check: a function from facts to findings, and a line in the list. It
// changes nothing, and never sees a private key.
package doctor
