package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// testSBOM reads a bill of materials as others do.
func testSBOM(t *testing.T, made Image, index v1.ImageIndex) {
	d, err := spdxjson.Read(bytes.NewReader(read(t, made.SBOM)))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(d); err != nil {
		t.Error(err)
	}
	if d.SPDXVersion != "SPDX-2.3" || d.CreationInfo.Created != "2026-01-02T03:04:05Z" || !strings.HasSuffix(d.DocumentNamespace, strings.TrimPrefix(made.Digest, "sha256:")) {
		t.Errorf("document: %s of %s, %s", d.SPDXVersion, d.CreationInfo.Created, d.DocumentNamespace)
	}
	packages := map[string]*spdx.Package{}
	ids := map[common.ElementID]string{}
	for _, p := range d.Packages {
		if other, ok := ids[p.PackageSPDXIdentifier]; ok {
			t.Errorf("%s and %s are both %s", other, p.PackageName, p.PackageSPDXIdentifier)
		}
		ids[p.PackageSPDXIdentifier] = p.PackageName + " " + p.PackageVersion
		if !regexp.MustCompile(`^[A-Za-z0-9.-]+$`).MatchString(string(p.PackageSPDXIdentifier)) {
			t.Errorf("%s: SPDX allows letters, digits, dots and dashes", p.PackageSPDXIdentifier)
		}
		packages[string(p.PackageSPDXIdentifier)] = p
	}
	var got []string
	for _, r := range d.Relationships {
		got = append(got, strings.TrimSpace(ids[r.RefA.ElementRefID]+" "+r.Relationship+" "+ids[r.RefB.ElementRefID]))
	}
	program, golang := "github.com/sluice-net/sluice/cmd/hello v1.2.3", "stdlib "+strings.TrimPrefix(runtime.Version(), "go")
	if diff := cmp.Diff([]string{
		"DESCRIBES " + made.Reference + " v1.2.3",
		made.Reference + " v1.2.3 CONTAINS " + program,
		program + " DEPENDS_ON " + golang,
		program + " DEPENDS_ON example.com/copied v1.0.0",
		program + " DEPENDS_ON golang.org/x/sys v0.49.0",
		made.Reference + " v1.2.3 CONTAINS " + program,
		program + " DEPENDS_ON " + golang,
		program + " DEPENDS_ON example.com/copied v1.0.0",
		program + " DEPENDS_ON golang.org/x/sys v0.49.0",
	}, got); diff != "" {
		t.Errorf("relationships (-want +got):\n%s", diff)
	}
	if p := packages["Module-example.com-copied-v1.0.0"]; p == nil || p.PackageSourceInfo != "modified copy of example.com/copied@v1.0.0 in third_party/copied" ||
		p.PackageDownloadLocation != "git+https://github.com/sluice-net/sluice@c0ffee#third_party/copied" || len(p.PackageChecksums) > 0 ||
		p.PackageExternalReferences[0].Locator != "pkg:golang/example.com/copied@v1.0.0" {
		t.Errorf("copied module: %+v, want its name and version, and where the copy lies", p)
	}
	eachImage(t, index, func(t *testing.T, image v1.Image, architecture string) {
		_, contents := listFiles(t, image)
		sum := sha256.Sum256(contents["usr/local/bin/hello"])
		want := []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}}
		p := packages["Binary-linux-"+architecture]
		if p == nil || !cmp.Equal(want, p.PackageChecksums) || p.PackageFileName != "/usr/local/bin/hello" {
			t.Errorf("binary: %+v, want /usr/local/bin/hello with %v", p, want)
		}
	})
}

func TestModulePackage(t *testing.T) {
	got := Options{}.modulePackage(&debug.Module{Path: "example.com/Old/a_b", Version: "v1.0.0", Replace: &debug.Module{
		Path: "example.com/New/a_b", Version: "v2.0.0+incompatible", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
	}})
	want := &spdx.Package{
		PackageName: "example.com/New/a_b", PackageVersion: "v2.0.0+incompatible",
		PackageSPDXIdentifier:   "Module-example.com-New-a-b-v2.0.0-incompatible",
		PackageDownloadLocation: "https://proxy.golang.org/example.com/!new/a_b/@v/v2.0.0+incompatible.zip",
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}},
		PackageSourceInfo:       "go.sum: h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
		PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/example.com/new/a_b@v2.0.0%2Bincompatible",
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(spdx.Package{})); diff != "" {
		t.Errorf("package of a replaced module (-want +got):\n%s", diff)
	}
}
