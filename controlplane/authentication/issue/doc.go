// Package issue is how a provider gives credentials to a consumer: a client certificate, signed by the cluster's own
// signer, and where the API server is.
//
//	request, judged by the caller -> CertificateSigningRequest, approved -> signer -> Secret liqo-remote-certificate
//
// The Secret keeps what was signed, so that a certificate is signed once, and again when two thirds of its life are
// over. Until the new one is there the old one is given out. Nothing here waits: who asks too early is told so.
package issue
