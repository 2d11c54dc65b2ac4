// Package progress reports what a long operation is doing to whatever shows it: a
// terminal, a log, a test. The operation does not know who is listening.
package progress
