// Command mkimages builds the container images of the project: see package images.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/deploy/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "mkimages: %v\n", err)
		os.Exit(1)
	}
}

// run builds what the arguments ask for. Results go to stdout, progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, to, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	o.Progress = func(s string) { fmt.Fprintln(stderr, s) }
	made, err := images.Build(ctx, o)
	if err != nil {
		return err
	}
	for _, i := range made {
		if err := describe(stdout, i); err != nil {
			return err
		}
	}
	if to.load != "" {
		for _, i := range made {
			if err := images.Load(ctx, i, to.load); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "loaded %s into %s\n", i.Reference, to.load)
		}
	}
	if !to.push {
		if to.load == "" {
			next(stdout, made[0])
		}
		return nil
	}
	for _, i := range made {
		if err := images.Push(ctx, i); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "pushed %s@%s\n", i.Reference, i.Digest)
	}
	return nil
}

// describe prints what has become of a program.
func describe(w io.Writer, i images.Image) error {
	st, err := os.Stat(i.Archive)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n  digest   %s\n  archive  %s (%.1f MB)\n  layout   %s\n  SBOM     %s\n",
		i.Reference, i.Digest, i.Archive, float64(st.Size())/1e6, i.Layout, i.SBOM)
	return nil
}

// next tells what to do with images, by one of them.
func next(w io.Writer, i images.Image) {
	fmt.Fprintf(w, `
On a node:      ctr -n k8s.io images import %[1]s
In k3s:         k3s ctr images import %[1]s
In kind:        kind load image-archive %[1]s --name CLUSTER
All at once:    make images-load TO=containerd, TO=k3s or TO=kind:CLUSTER
In Docker:      docker load -i %[1]s
To a registry:  the same command with --registry and --push, or
                skopeo copy --all oci:%[2]s:%[4]s docker://%[3]s
`, i.Archive, i.Layout, i.Reference, i.Reference[strings.LastIndex(i.Reference, ":")+1:])
}
