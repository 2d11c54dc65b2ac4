package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/deploy/images"
)

const usageHead = `mkimages builds the container images of Sluice from this source tree, without a
container engine, a registry or root. The same commit, version and Go give the
same digests on every machine.

Usage:
  go run ./deploy/images/mkimages [-o DIR] [flags]

Of each program it leaves in DIR:
  NAME.tar         for ctr, k3s, kind, docker and podman
  NAME/            OCI image layout: what a registry gets
  NAME.spdx.json   bill of materials: SPDX 2.3

Flags:
`

const usageTail = `
Examples:
  # Into the nodes of a cluster of kind.
  go run ./deploy/images/mkimages --load kind:rome

  # To a registry, with the credentials of 'docker login', for nodes of two platforms.
  go run ./deploy/images/mkimages --registry registry.example.com/sluice --version v1.0.0 \
    --platform linux/amd64,linux/arm64 --push
  liqoctl install --set registry=registry.example.com/sluice,tag=v1.0.0 ...

A liqoctl of the same build ('make images build', with the same VERSION and REGISTRY)
installs these images without being told.

Docker without containerd's image store takes the first platform of an archive:
give it an archive of its own platform only.
`

// destination is where images go besides the directory.
type destination struct {
	push bool   // to the registry
	load string // to nodes, as images.Load calls them
}

// parseFlags reads the command line.
func parseFlags(args []string, stdout io.Writer) (o images.Options, to destination, err error) {
	var programs []string
	f := pflag.NewFlagSet("mkimages", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVarP(&o.Out, "output", "o", "bin/images", "`directory` of the results")
	f.StringVar(&o.Version, "version", "", "`version` of the programs and tag of the images (default: git describe)")
	f.StringVar(&o.Registry, "registry", images.DefaultRegistry, "`name` that the images' names begin with")
	f.StringSliceVar(&o.Platforms, "platform", images.Host(), "`platforms`, with commas or repeated, such as "+strings.Join(images.Platforms(), ","))
	f.StringSliceVar(&programs, "program", nil, "`programs`, with commas or repeated: "+strings.Join(names(), ", ")+" (default: all)")
	f.BoolVar(&to.push, "push", false, "send the images to the registry")
	f.StringVar(&to.load, "load", "", "bring the images to the nodes: `"+images.Loaders+"`")
	f.Usage = func() { fmt.Fprint(stdout, usageHead+f.FlagUsages()+usageTail) }
	if err := f.Parse(args); err != nil {
		return o, to, err
	}
	if f.NArg() > 0 {
		return o, to, fmt.Errorf("%q: there are flags only; --help lists them", f.Arg(0))
	}
	if f.Changed("load") {
		if err := images.CheckLoad(to.load); err != nil {
			return o, to, fmt.Errorf("--load: %w", err)
		}
	}
	for _, name := range programs {
		p, err := program(name)
		if err != nil {
			return o, to, err
		}
		o.Programs = append(o.Programs, p)
	}
	return o, to, nil
}

// program finds one by its name.
func program(name string) (images.Program, error) {
	for _, p := range images.Programs() {
		if p.Name == name {
			return p, nil
		}
	}
	return images.Program{}, fmt.Errorf("--program %s: must be one of %s", name, strings.Join(names(), ", "))
}

func names() []string {
	var names []string
	for _, p := range images.Programs() {
		names = append(names, p.Name)
	}
	return names
}
