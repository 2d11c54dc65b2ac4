// Package text joins and bounds the texts of conditions, Events and errors.
package text

import (
	"fmt"
	"strings"
	"unicode"
)

// MaxEvent is how many bytes of text an API server accepts in an Event
// (k8s.io/api/events/v1, Event.note).
const MaxEvent = 1024

// maxQuoted is how many bytes of another party's text a message quotes.
const maxQuoted = 100

// Cut returns s with at most most bytes, which must be at least 3: what is left out at
// the end is shown as "...". Bytes that are not UTF-8, which an API server refuses, are
// replaced by question marks.
func Cut(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return strings.ToValidUTF8(s, "?") // never longer
}

// Printable is [Cut] for another party's text: control characters, which a terminal obeys,
// and line breaks are spaces.
func Printable(s string, most int) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, Cut(s, most)) // a space is never longer
}

// Quoted returns the part of another party's text that a message quotes: enough to
// recognize it.
func Quoted(s string) string { return Cut(s, maxQuoted) }

// Join writes values one after the other, each as [fmt.Sprint] does, with sep between them.
func Join[T any](values []T, sep string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, sep)
}

// Few names the first three of a list, and says how many more there are.
func Few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
