// Package uml boots a Linux kernel as an ordinary program (user-mode Linux) and
// runs scripts inside: a second opinion from a kernel that has WireGuard,
// Geneve and netem where the machine's own has none.
//
// build.sh makes the kernel, once, into a cache. The guest needs no image: its
// root is the host's root directory, read-only, so that it has the programs
// that the host has; /tmp, /run and /dev are its own. Its wire is a tap device
// in whatever namespace it is started from, or one end of a datagram socket
// pair: one datagram is one Ethernet frame. It boots in half a second, has one
// processor and slow system calls; it proves behavior, not speed.
package uml
