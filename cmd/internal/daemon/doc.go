// Package daemon holds what the long-running commands have in common: parsing of
// flags and errors about them, shutdown by signals, the servers for status, health
// and metrics, and the layout of printed output.
//
// It knows no command and imports no package of ours. Only what two commands use
// belongs here.
package daemon
