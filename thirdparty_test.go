package sluice_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wireguard is what third_party/wireguard is a copy of. The digest is that of go.sum and
// of sum.golang.org: `go mod download -json MODULE@VERSION` prints it as Sum.
const (
	wireguard        = "golang.zx2c4.com/wireguard"
	wireguardVersion = "v0.0.0-20260522210424-ecfc5a8d5446"
	wireguardSum     = "h1:cqHQ3AycTHvM2R7ikgyX57D+XvtcSnGylsLkOVhta/w="
)

// wireguardAdded are the files of ours in it.
var wireguardAdded = []string{"device/direct.go", "device/direct_test.go", "device/direct_upstream_test.go"}

// TestThirdParty: the copy of wireguard-go is of the version that go.mod requires, and but
// for the files that we added it is what its authors publish.
func TestThirdParty(t *testing.T) {
	b, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "\nreplace "+wireguard+" => ./third_party/wireguard\n") {
		t.Fatalf("go.mod does not replace %s with ./third_party/wireguard: without that line the copy is unused", wireguard)
	}
	required := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(wireguard) + ` \S+`).FindString(string(b))
	if required != "\t"+wireguard+" "+wireguardVersion {
		t.Fatalf("go.mod requires %s, but third_party/wireguard is a copy of version %s: change both, as third_party/README.md says", strings.TrimSpace(required), wireguardVersion)
	}
	if sum := moduleSum(t, "third_party/wireguard", wireguard+"@"+wireguardVersion, wireguardAdded); sum != wireguardSum {
		t.Errorf(`third_party/wireguard without %v has the digest %s, as published it has %s:
changes belong into the files of ours; what differs is shown by
diff -r "$(go mod download -json %s@%s | jq -r .Dir)" third_party/wireguard`, wireguardAdded, sum, wireguardSum, wireguard, wireguardVersion)
	}
}

// moduleSum is the digest of a folder's files, as go.sum has it of a module (golang.org/x/mod/sumdb/dirhash).
func moduleSum(t *testing.T, folder, module string, except []string) string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.Contains(except, name) {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var list strings.Builder
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%x  %s/%s\n", sha256.Sum256(content), module, name)
	}
	sum := sha256.Sum256([]byte(list.String()))
	return "h1:" + base64.StdEncoding.EncodeToString(sum[:])
}
