package images

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Loaders are where Load brings images: the container engines of nodes.
const Loaders = "containerd, k3s, kind or kind:CLUSTER"

// CheckLoad tells whether Load knows where to bring images.
func CheckLoad(to string) error {
	_, err := loader("", to)
	return err
}

// Load brings an image to the node that this machine is, or to those of a cluster of kind.
func Load(ctx context.Context, i Image, to string) error {
	args, err := loader(i.Archive, to)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// loader is the command that loads an archive.
func loader(archive, to string) ([]string, error) {
	engine, cluster, named := strings.Cut(to, ":")
	switch {
	case to == "containerd":
		return []string{"ctr", "-n", "k8s.io", "images", "import", archive}, nil
	case to == "k3s":
		return []string{"k3s", "ctr", "images", "import", archive}, nil
	case to == "kind":
		return []string{"kind", "load", "image-archive", archive}, nil
	case engine == "kind" && named && cluster != "":
		return []string{"kind", "load", "image-archive", archive, "--name", cluster}, nil
	}
	return nil, fmt.Errorf("nothing loads images into %q: it must be %s", to, Loaders)
}
