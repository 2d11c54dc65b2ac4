// Package credentials makes and judges what two clusters prove to each other who they are with: key pairs, signed
// nonces, certificate signing requests and kubeconfigs. It is pure: it reads nothing and writes nothing.
//
// Everything that it judges was written by another party and is hostile. What it accepts is listed; everything else is
// refused, with the reason:
//
//   - a request for a certificate has exactly one common name and one organization, those that are expected, and asks
//     for nothing else: no alternative names, no extensions;
//   - a kubeconfig holds its credentials itself. It runs no program, reads no file, and sends nothing without TLS.
package credentials
