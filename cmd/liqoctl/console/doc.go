// Package console is what the user of liqoctl sees: lines with a prefix and a
// colour, a spinner while something is under way, tables, questions. On a
// terminal it is lively, elsewhere it writes plain lines; progress and errors go
// to stderr, what was asked for to stdout.
package console
