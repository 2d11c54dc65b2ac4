// Package docs holds the document that programs show themselves.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed troubleshooting.md
var troubleshooting string

// Troubleshooting is a section of the troubleshooting page, without its heading; empty
// if there is none.
func Troubleshooting(heading string) string {
	_, after, _ := strings.Cut(troubleshooting, "\n## "+heading+"\n")
	section, _, _ := strings.Cut(after, "\n## ")
	return strings.TrimSpace(section)
}
