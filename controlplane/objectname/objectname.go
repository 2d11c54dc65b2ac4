// Package objectname makes names of objects that fit a limit. Names that are made
// of the same parts are always the same, so that nothing has to be remembered.
package objectname

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// digestBytes is how much of a SHA-256 Shorten puts into a name.
const digestBytes = 4

// Shorten returns name if it has at most limit bytes. Otherwise a digest of the
// whole name replaces its end.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return WithSuffix(name, Digest(name, digestBytes), limit)
}

// WithSuffix returns name, a dash and suffix. What exceeds limit bytes is cut from
// the end of name, along with dashes and dots before the cut.
func WithSuffix(name, suffix string, limit int) string {
	return strings.TrimRight(name[:min(len(name), limit-len(suffix)-1)], "-.") + "-" + suffix
}

// Digest returns the first n bytes of the SHA-256 of text in hexadecimal.
func Digest(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:n])
}
