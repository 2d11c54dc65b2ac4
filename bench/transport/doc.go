// Package transport is WireGuard's transport without queues: what seals and opens
// messages is called where the packets are, and returns when it is done.
//
// It is a prototype, there to be measured and to be decided on: it is no part
// of the product.
package transport
