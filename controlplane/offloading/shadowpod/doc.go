// Package shadowpod makes the pods that consumers ask for, in the namespaces that were made for them.
//
//	ShadowPod -> judged (package allow) -> counted against a Quota -> Pod, whose owner it is
//	          <- status.phase, when the Pod is some seconds old, or has ended
//
// A Pod that vanishes is made again, whether the consumer is there or not, until one has ended. What cannot be made stays
// Pending, and an event says why. Of a ShadowPod that changes the Pod follows what Kubernetes lets one change; resources by a
// resize in place, which waits until the Quota has room.
//
// A spec is read as another party's: anything can stand in it. It is kept as bytes until it is judged, so that one which
// cannot be read hides no others, and what is too large is not kept at all. Whose quota it takes is said by the namespace
// and the provider's own objects; a label of the consumer only chooses among the consumer's Quotas.
package shadowpod
