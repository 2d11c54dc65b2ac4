package mirror

import (
	"fmt"
	"strings"
	"time"
)

// Text says for people how things are between a program and its API server, and
// which objects are at hand. age is how a time that has passed is written.
func (s State) Text(age func(since time.Time) string) (contact, objects string) {
	switch {
	case !s.Away.IsZero():
		contact = "no contact with the API server for " + age(s.Away) + ": " + s.Error
	case !s.Connected:
		contact = "reading the objects of the cluster"
	default:
		contact = "in contact with the API server"
	}
	var counts []string
	for _, w := range s.Watches {
		count := fmt.Sprintf("%d %s", w.Objects, w.Name)
		if !w.Synced {
			count = w.Name + " not read yet"
		}
		counts = append(counts, count)
	}
	return contact, strings.Join(counts, ", ")
}
