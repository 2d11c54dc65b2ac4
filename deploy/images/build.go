package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Options say what is built. Only Out has to be set.
type Options struct {
	Root      string       // the module's root; empty: that of the working directory
	Out       string       // directory of the results, made when it is not there
	Registry  string       // where references begin; empty: DefaultRegistry
	Version   string       // of the programs, and tag of the images; empty: git describe
	Revision  string       // commit; empty: HEAD of the work tree, if there is one
	Time      time.Time    // of all files; zero: SOURCE_DATE_EPOCH, else the commit's, else 1970
	Platforms []string     // such as linux/arm64; empty: Host()
	Programs  []Program    // empty: Programs()
	Progress  func(string) // what is being done; nil: nobody asks
	Cache     string       // directory where programs stay, which are not linked again then; empty: none
}

// Platforms are those that images are made for.
func Platforms() []string { return []string{"linux/amd64", "linux/arm64"} }

// Host is the platform of this machine, which is that of most nodes. Each further one is
// compiled anew.
func Host() []string { return []string{"linux/" + runtime.GOARCH} }

// Image is what Build has made of a program.
type Image struct {
	Name      string // of the program
	Reference string // full name and tag, such as sluice.local/gateway:v1
	Digest    string // sha256:... of the index of all platforms: what the tag stands for in a registry
	Layout    string // directory: OCI image layout, what a registry gets
	Archive   string // file: the layout for `ctr images import`, `docker load` and `podman load`
	SBOM      string // file: SPDX 2.3 in JSON
}

// Build compiles programs and makes images of them.
func Build(ctx context.Context, o Options) ([]Image, error) {
	o, err := o.complete(ctx)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(o.Out, ".build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	var made []Image
	for _, p := range o.Programs {
		i, err := o.build(ctx, p, work)
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", p.Name, err)
		}
		made = append(made, *i)
	}
	return made, nil
}

// complete fills in what was left out.
func (o Options) complete(ctx context.Context) (Options, error) {
	if o.Out == "" {
		return o, errors.New("no directory for the images")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Registry = cmp.Or(o.Registry, DefaultRegistry)
	if len(o.Platforms) == 0 {
		o.Platforms = Host()
	}
	if len(o.Programs) == 0 {
		o.Programs = Programs()
	}
	if o.Root == "" {
		root, err := command(ctx, ".", "go", "list", "-m", "-f", "{{.Dir}}")
		if err != nil {
			return o, fmt.Errorf("find the root of the module: %w", err)
		}
		o.Root = root
	}
	if err := o.describe(ctx); err != nil {
		return o, err
	}
	return o, os.MkdirAll(o.Out, 0o755)
}

// build makes the image of one program.
func (o Options) build(ctx context.Context, p Program, work string) (*Image, error) {
	tag, err := parseReference(o.Registry + "/" + p.Name + ":" + o.Version)
	if err != nil {
		return nil, err
	}
	var binaries []binary
	for _, platform := range o.Platforms {
		o.Progress(fmt.Sprintf("%s: %s", p.Name, platform))
		b, err := o.compile(ctx, p, platform, filepath.Join(work, p.Name+"-"+strings.ReplaceAll(platform, "/", "-")))
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, *b)
	}
	index, err := assemble(p, binaries, o.labels(p), o.Time)
	if err != nil {
		return nil, err
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	made := &Image{
		Name: p.Name, Reference: reference(tag), Digest: digest.String(),
		Layout:  filepath.Join(o.Out, p.Name),
		Archive: filepath.Join(o.Out, p.Name+".tar"),
		SBOM:    filepath.Join(o.Out, p.Name+".spdx.json"),
	}
	if err := writeLayout(made.Layout, tag, index); err != nil {
		return nil, fmt.Errorf("write the image layout: %w", err)
	}
	if err := writeArchive(made.Archive, made.Layout, tag, index); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}
	return made, o.writeSBOM(made, p, binaries)
}

// labels tell what an image is and where it comes from, in the words of the OCI's
// image specification.
func (o Options) labels(p Program) map[string]string {
	l := map[string]string{
		"title": p.Name, "description": p.Description, "version": o.Version, "licenses": License,
		"source": Repository, "created": o.Time.Format(time.RFC3339),
	}
	if o.Revision != "" {
		l["revision"] = o.Revision
	}
	labels := map[string]string{}
	for k, v := range l {
		labels["org.opencontainers.image."+k] = v
	}
	return labels
}

// parseReference reads the name and tag of an image.
func parseReference(s string) (name.Tag, error) {
	tag, err := name.NewTag(s, name.WeakValidation)
	if err != nil {
		return tag, fmt.Errorf("reference of the image: %w", err)
	}
	return tag, nil
}

// reference is the full name of an image as container engines know it.
func reference(tag name.Tag) string {
	// Docker Hub has a name that only its registry goes by.
	if rest, ok := strings.CutPrefix(tag.Name(), name.DefaultRegistry+"/"); ok {
		return "docker.io/" + rest
	}
	return tag.Name()
}

// platformOf reads what the go command and images call a platform.
func platformOf(s string) (*v1.Platform, error) {
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS != "linux" || p.Architecture == "" {
		return nil, fmt.Errorf("platform %q: must be linux/ and an architecture, such as linux/arm64", s)
	}
	return p, nil
}
