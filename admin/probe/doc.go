// Package probe is what the pods of `liqoctl test network` do: a Server says who
// it is and from where it was asked, and a Client tries addresses and tells what
// it found, as a Result that can be sent through `kubectl exec`.
//
// Both work over any network: sockets in a pod, an in-memory stack in a test. It
// imports the standard library only, as the image of the prober should stay small.
package probe
