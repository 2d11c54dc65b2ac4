// Package console is what the user of liqoctl sees: lines with a prefix and a
// colour, a spinner while something is under way, tables and boxes that fit the
// window, questions. On a terminal it is lively, elsewhere it writes plain lines;
// progress and errors go to stderr, what was asked for to stdout.
//
// Text comes as it is, also what a cluster says of itself: whatever could move
// the cursor or deceive the reader is made harmless before it is written.
//
// Only the widths of characters come from a library. lipgloss and pterm pass escape
// sequences within the text on to the terminal. A table of lipgloss has no other
// form for windows in which its columns would be a few characters wide; one of pterm
// exceeds the window. pterm also keeps one state for the whole process, where stdout
// may be a pipe while stderr is a terminal, and lets long lines wrap under a spinner,
// which then cannot be redrawn.
package console
