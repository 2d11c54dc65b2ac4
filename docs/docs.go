// Package docs holds the document that programs show themselves, and for tests all pages.
package docs

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.md
var pages embed.FS

// Pages are the files of this folder, for tests that compare what they say with what programs do.
func Pages() fs.FS { return pages }

//go:embed troubleshooting.md
var troubleshooting string

// Troubleshooting is a section of the troubleshooting page, without its heading; empty
// if there is none.
func Troubleshooting(heading string) string {
	_, after, _ := strings.Cut(troubleshooting, "\n## "+heading+"\n")
	section, _, _ := strings.Cut(after, "\n## ")
	return strings.TrimSpace(section)
}
