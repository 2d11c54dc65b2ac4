package survey

import (
	"fmt"
	"slices"
	"strings"
)

// maxGapLines is how many gaps are worth a line of their own.
const maxGapLines = 5

// GapLines says in a few lines what could not be read: all that the user may not
// read in one line, then the rest, each with its reason. Origin names the user's
// credentials.
func GapLines(gaps []Gap, origin string) (lines []string) {
	var forbidden, others []string
	add := func(to *[]string, text string) {
		if !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	for _, g := range gaps {
		if denied(g.Err) {
			add(&forbidden, g.What)
		} else {
			add(&others, g.Err.Error())
		}
	}
	slices.Sort(forbidden)
	if len(forbidden) > 0 {
		user := "the user"
		if origin != "" {
			user += " of " + origin
		}
		lines = append(lines, fmt.Sprintf("left out, as %s may not read it: %s", user, strings.Join(forbidden, ", ")))
	}
	if n := len(others) - maxGapLines; n > 0 {
		others = append(others[:maxGapLines], fmt.Sprintf("and %d more that cannot be read", n))
	}
	return append(lines, others...)
}
