// Package tenant is the provider's side of a peering: it judges Tenants, and gives each consumer the credentials and
// the rights that it is due, in its tenant namespace and nowhere else.
//
//	Secret liqo-nonce <- nonce        | consumer signs it, sends its public key and a request
//	Tenant (KeysExchange)             -> certificate (package issue), RoleBinding, status.authParams
//	Tenant (TolerateNoHandshake)      -> status.tenantNamespace; credentials and RoleBinding are the user's
//
// A nonce is good for one handshake: the one that is accepted replaces it. What was accepted is remembered in an
// annotation of the Tenant's RoleBinding, so that neither a restart nor a new nonce asks the consumer to prove itself
// again.
//
// What is made for a Tenant belongs to it and goes with it. There are no finalizers.
package tenant
