package fabric

import (
	"slices"
	"strings"
	"time"
)

const (
	// contestAfter is how many repairs of one thing in a row are no accident.
	contestAfter = 5
	// contestWindow lies at most between two repairs that belong together, beside
	// the pause that was made between them.
	contestWindow = 10 * time.Second
	// contestPause is the first pause between repairs, maxContestPause the last.
	contestPause    = 500 * time.Millisecond
	maxContestPause = 30 * time.Second
)

// contest notices that another program changes again and again what is repaired
// here. Two that are both fast would keep a processor busy and the network in
// ruins, so this one becomes slow, and says what it is about.
type contest struct {
	repairs map[string]repair // by the line of the plan
	over    string            // what it is about; empty: there is none
	pause   time.Duration
	last    time.Time // of all repairs
}

type repair struct {
	count int
	last  time.Time
}

// repaired takes what a repair consisted of. It tells whether a contest begins.
func (c *contest) repaired(lines []string, now time.Time) (begins bool) {
	if c.repairs == nil {
		c.repairs = make(map[string]repair)
	}
	for line, r := range c.repairs {
		if now.Sub(r.last) > contestWindow+2*c.pause {
			delete(c.repairs, line)
		}
	}
	c.last = now
	most := 0
	for _, line := range lines {
		r := c.repairs[line]
		r.count, r.last = r.count+1, now
		c.repairs[line] = r
		most = max(most, r.count)
	}
	if most <= contestAfter {
		return false
	}
	begins = c.over == ""
	c.pause = min(contestPause<<min(most-contestAfter-1, 10), maxContestPause)
	var over []string
	for _, line := range lines {
		if c.repairs[line].count == most {
			over = append(over, line)
		}
	}
	slices.Sort(over)
	c.over = strings.Join(firstOf(over), "; ")
	return begins
}

// notBefore is when the next repair may be.
func (c *contest) notBefore() time.Time { return c.last.Add(c.pause) }

// settled tells whether a contest has ended: nothing was to be repaired for long.
func (c *contest) settled(now time.Time) bool {
	if c.over == "" || now.Sub(c.last) <= contestWindow+2*c.pause {
		return false
	}
	*c = contest{}
	return true
}
