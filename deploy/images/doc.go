// Package images builds the container images of the project from its Go tree:
// without a container engine, a registry or the network.
//
// An image is two layers over nothing. One names the user, the other is one
// static binary in /usr/local/bin:
//
//	/etc/passwd  /etc/group      layer 1, the same in all images
//	/usr/local/bin/gateway       layer 2
//
// There is no shell, no library and no CA certificate: the programs talk to the
// API server, whose CA comes with the service account, and to gateways, by keys.
// Nothing in it is writable and nothing needs to be.
//
// The same commit and the same Go give the same bytes, wherever they are built: the
// compiler leaves paths and the state of the work tree out, files have the time of the
// commit, and everything is written in a fixed order.
//
// Of each image Build leaves an OCI image layout (a directory), an archive of it that
// `ctr images import`, `docker load` and `podman load` take, and a bill of materials.
package images
