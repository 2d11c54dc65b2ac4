package survey

import (
	"fmt"
	"slices"
	"strings"
)

// maxReasons is how many gaps are worth a line of their own.
const maxReasons = 5

// Missing says in a few lines what could not be read: where the user may look, all that the user may not read in one
// line, then the rest, each with its reason. Origin names the user's credentials.
func (c *Cluster) Missing(origin string) (lines []string) {
	var forbidden, others []string
	add := func(to *[]string, text string) {
		if !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	for _, g := range c.Gaps {
		if denied(g.Err) {
			add(&forbidden, g.What)
		} else {
			add(&others, g.Err.Error())
		}
	}
	slices.Sort(forbidden)
	user := "the user"
	if origin != "" {
		user += " of " + origin
	}
	if c.Within != "" {
		lines = append(lines, fmt.Sprintf("only namespace %s is shown: %s may not look everywhere", c.Within, user))
	}
	if len(forbidden) > 0 {
		lines = append(lines, fmt.Sprintf("left out, as %s may not read it: %s", user, strings.Join(forbidden, ", ")))
	}
	if n := len(others) - maxReasons; n > 0 {
		others = append(others[:maxReasons], fmt.Sprintf("and %d more that cannot be read", n))
	}
	return append(lines, others...)
}
