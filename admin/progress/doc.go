// Package progress is how long work tells what it is doing, to whoever shows it:
// a terminal, a log, a test. The work knows nobody who listens.
package progress
