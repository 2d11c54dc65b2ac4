// Package dataplanetest builds networks in memory: sockets, nodes with pods,
// and two clusters joined by real gateways with real wireguard-go between them.
// It serves tests, benchmarks and the demo; nothing else imports it.
package dataplanetest
