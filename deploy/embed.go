// Package deploy holds what installs the project in a cluster, for programs that
// carry it with them: the chart and the CRDs, and for tests the manifests.
package deploy

import (
	"embed"
	"io/fs"
)

//go:embed all:chart
var chart embed.FS

//go:embed crds
var crds embed.FS

//go:embed manifests
var manifests embed.FS

//go:embed mcs
var mcs embed.FS

// Chart is the Helm chart, without the CRDs: Helm never updates those.
func Chart() fs.FS { return sub(chart, "chart") }

// CRDs are the definitions of the project's kinds, one in each file.
func CRDs() fs.FS { return sub(crds, "crds") }

// Manifests are what the chart makes, for kubectl.
func Manifests() fs.FS { return sub(manifests, "manifests") }

// MultiCluster are the definitions of the Multi-Cluster Services API, which are not this project's: as
// sigs.k8s.io/mcs-api publishes them.
func MultiCluster() fs.FS { return sub(mcs, "mcs") }

func sub(f embed.FS, dir string) fs.FS {
	s, err := fs.Sub(f, dir)
	if err != nil {
		panic(err) // the name is wrong: the first test finds out
	}
	return s
}
