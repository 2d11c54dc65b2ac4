package images

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"net/url"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// unknown is SPDX's word for what nobody has looked into.
const unknown = "NOASSERTION"

// writeSBOM writes the bill of materials of an image: the image, the binary of each platform,
// and the Go modules that are linked into these, as the linker wrote them down.
func (o Options) writeSBOM(made *Image, p Program, binaries []binary) error {
	f, err := os.Create(made.SBOM)
	if err != nil {
		return err
	}
	err = spdxjson.Write(o.billOfMaterials(made, p, binaries), f, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
	return errors.Join(err, f.Close())
}

// billOfMaterials says the same for the same image.
func (o Options) billOfMaterials(made *Image, p Program, binaries []binary) *spdx.Document {
	image := &spdx.Package{
		PackageName: made.Reference, PackageSPDXIdentifier: "Image", PackageVersion: o.Version,
		PackageDownloadLocation: unknown, PrimaryPackagePurpose: "CONTAINER", PackageSummary: p.Description,
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: License, PackageCopyrightText: unknown,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: strings.TrimPrefix(made.Digest, "sha256:")}},
	}
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: made.Reference,
		// One for each content of the image, as SPDX demands.
		DocumentNamespace: Repository + "/sbom/" + p.Name + "/" + strings.TrimPrefix(made.Digest, "sha256:"),
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "sluice-mkimages"}},
			Created:  o.Time.Format(time.RFC3339),
		},
		Packages: []*spdx.Package{image},
	}
	relate(d, "DOCUMENT", common.TypeRelationshipDescribe, "Image")
	modules := map[common.ElementID]*spdx.Package{}
	for _, b := range binaries {
		program := o.binaryPackage(p, b)
		d.Packages = append(d.Packages, program)
		relate(d, "Image", common.TypeRelationshipContains, program.PackageSPDXIdentifier)
		linked := []*spdx.Package{standardLibrary(b.info.GoVersion)}
		for _, m := range b.info.Deps {
			linked = append(linked, o.modulePackage(m))
		}
		for _, m := range linked {
			modules[m.PackageSPDXIdentifier] = m
			relate(d, program.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, m.PackageSPDXIdentifier)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		d.Packages = append(d.Packages, modules[id])
	}
	return d
}

// binaryPackage is a program compiled for a platform.
func (o Options) binaryPackage(p Program, b binary) *spdx.Package {
	return &spdx.Package{
		PackageName: b.info.Path, PackageVersion: o.Version, PackageFileName: "/" + binDir + "/" + p.Name,
		PackageSPDXIdentifier:   elementID("Binary", b.platform.OS, b.platform.Architecture),
		PackageSummary:          "for " + b.platform.String(),
		PackageDownloadLocation: cmp.Or(sourceOf(o.Revision), unknown), PrimaryPackagePurpose: "APPLICATION",
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: License, PackageCopyrightText: unknown,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: b.sha256}},
	}
}

// sourceOf is where a commit is fetched from.
func sourceOf(revision string) string {
	if revision == "" {
		return ""
	}
	return "git+" + Repository + "@" + revision
}

// standardLibrary is what comes with Go.
func standardLibrary(version string) *spdx.Package {
	version = strings.TrimPrefix(version, "go")
	return library("stdlib", version, elementID("Go", version), "https://go.dev/dl/go"+version+".src.tar.gz")
}

// modulePackage is a module, or what replaces it.
func (o Options) modulePackage(m *debug.Module) *spdx.Package {
	if r := m.Replace; r != nil {
		if r.Version == "(devel)" { // as the linker says of a folder
			return o.copyPackage(m, r.Path)
		}
		m = r
	}
	l := library(m.Path, m.Version, elementID("Module", m.Path, m.Version), "https://proxy.golang.org/"+escape(m.Path)+"/@v/"+escape(m.Version)+".zip")
	// h1: the SHA-256 of a list of the module's files and their digests.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && m.Sum != "" {
		l.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum)}}
		l.PackageSourceInfo = "go.sum: " + m.Sum
	}
	return l
}

// copyPackage is a module that a copy in a folder of the repository replaces. It keeps the
// name and the version by which vulnerabilities are found; a digest it has none of, as the
// published one is not that of the copy.
func (o Options) copyPackage(m *debug.Module, folder string) *spdx.Package {
	location := unknown
	if source := sourceOf(o.Revision); source != "" {
		location = source + "#" + path.Clean(folder)
	}
	l := library(m.Path, m.Version, elementID("Module", m.Path, m.Version), location)
	l.PackageSourceInfo = "modified copy of " + m.Path + "@" + m.Version + " in " + path.Clean(folder)
	return l
}

// escape writes capital letters as the module proxy does, for file systems that know none.
func escape(s string) string {
	return regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(s, func(c string) string { return "!" + strings.ToLower(c) })
}

// library is a package that programs link.
func library(name, version string, id common.ElementID, location string) *spdx.Package {
	return &spdx.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: id,
		PackageDownloadLocation: location, PrimaryPackagePurpose: "LIBRARY",
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			// Package URLs of Go are lower-case.
			Locator: "pkg:golang/" + strings.ToLower(name) + "@" + url.QueryEscape(version),
		}},
	}
}

// elementID joins what identifies something with the characters that SPDX allows.
func elementID(parts ...string) common.ElementID {
	return common.ElementID(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.Join(parts, "-")))
}

// relate notes what one element is to another.
func relate(d *spdx.Document, from common.ElementID, relationship string, to common.ElementID) {
	d.Relationships = append(d.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: relationship,
	})
}
