// Package gatewaysync turns the objects of a peering into the configuration of
// the data plane, and keeps the two equal.
package gatewaysync
