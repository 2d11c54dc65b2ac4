// Package daemon is what the long-running commands have in common: how their
// flags read and what a mistake on the command line is answered with, how a
// signal ends them, the servers through which people and machines look in, and
// how what they show is printed.
//
// It knows no command and imports no package of ours. Only what two commands use
// belongs here.
package daemon
