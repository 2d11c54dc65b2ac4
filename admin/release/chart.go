package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/deploy"
)

// Name of the release, as `helm list` shows it.
const Name = "sluice"

// Chart is what is installed.
type Chart struct {
	chart *chartv2.Chart
}

// Build is what a program was built as. The images of the same build have its
// version as tag, and names that begin with its registry.
type Build struct {
	Version  string // empty, or no tag: noVersion
	Registry string // empty: that of the chart's values
}

// noVersion is the tag of images that were built without a version.
const noVersion = "unknown"

var (
	// released matches the version of a release, but not one that names a commit.
	released = regexp.MustCompile(`^v(\d+\.\d+\.\d+(-(alpha|beta|rc)\.?\d+)?)$`)
	// validTag is what registries take as a tag.
	validTag = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
)

// Embedded is the chart in this program. It installs the images of the same build.
func Embedded(b Build) (*Chart, error) {
	c, err := load(deploy.Chart())
	if err != nil {
		return nil, fmt.Errorf("the chart in this program: %w", err)
	}
	c.stamp(b)
	return c, nil
}

// stamp says of which build the images are, unless the chart was packaged with those
// of another one.
func (c *Chart) stamp(b Build) {
	if c.chart.Metadata.AppVersion != noVersion {
		return
	}
	if validTag.MatchString(b.Version) {
		c.chart.Metadata.AppVersion = b.Version
	}
	if m := released.FindStringSubmatch(b.Version); m != nil {
		c.chart.Metadata.Version = m[1]
	}
	if b.Registry != "" {
		c.chart.Values = merge(c.chart.Values, value(b.Registry, "registry"))
	}
}

// Folder is the chart in a folder, or in a .tgz file. The chart of the source tree
// installs the images of a build, as Embedded does.
func Folder(path string, b Build) (*Chart, error) {
	c, err := loader.Load(path)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", path, err)
	}
	// CRDs are none of the release's business: see crds.go.
	c.Files = slices.DeleteFunc(c.Files, func(f *common.File) bool { return strings.HasPrefix(f.Name, "crds/") })
	chart := &Chart{c}
	chart.stamp(b)
	return chart, nil
}

func load(files fs.FS) (*Chart, error) {
	var buffered []*archive.BufferedFile
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		buffered = append(buffered, &archive.BufferedFile{Name: name, Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	c, err := loader.LoadFiles(buffered)
	if err != nil {
		return nil, err
	}
	return &Chart{c}, nil
}

// Version is that of the programs that the chart installs unless a value says
// otherwise.
func (c *Chart) Version() string { return c.chart.AppVersion() }

// kindsOfNewest are the kinds for which templates ask, as not every version of Kubernetes that the chart supports serves
// them. An installation asks the cluster.
var kindsOfNewest = []string{"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"}

// render makes the manifests, by the name of their template: "fabric.yaml". The
// namespace is that of the release.
func (c *Chart) render(values Values, namespace string) (map[string]string, error) {
	o := common.ReleaseOptions{Name: Name, Namespace: namespace, Revision: 1, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), kindsOfNewest...)
	all, err := util.ToRenderValuesWithSchemaValidation(c.chart, values, o, capabilities, true)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{}.RenderWithContext(context.Background(), c.chart, all) // it asks nobody
	if err != nil {
		return nil, saidByTemplate(err)
	}
	rendered := map[string]string{}
	for name, text := range files {
		base := path.Base(name)
		if strings.TrimSpace(text) != "" && !strings.HasPrefix(base, "_") {
			rendered[base] = strings.TrimSpace(text) + "\n"
		}
	}
	return rendered, nil
}

// placeInTemplate is where a template refuses a value, as Helm puts it before the sentence of the template.
var placeInTemplate = regexp.MustCompile(`^execution error at \([^()]*\): `)

// saidByTemplate is the error of a template without its place, which is of no use to who sets values. Other errors stay.
func saidByTemplate(err error) error {
	if place := placeInTemplate.FindString(err.Error()); place != "" {
		return errors.New(strings.TrimPrefix(err.Error(), place))
	}
	return err
}

// coalesced are the values with the chart's own behind them.
func (c *Chart) coalesced(values Values) Values {
	all, err := util.CoalesceValues(c.chart, maps.Clone(values))
	if err != nil {
		return values // of the wrong shape: the schema says so
	}
	return all
}

// manifests are the rendered manifests in the order in which they can be applied.
func (c *Chart) manifests(values Values, namespace string) (string, error) {
	files, err := c.render(values, namespace)
	if err != nil {
		return "", err
	}
	delete(files, "NOTES.txt")
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, m := range sorted {
		fmt.Fprintf(&b, "---\n%s\n", strings.TrimSpace(m.Content))
	}
	return b.String(), nil
}

// objects are those of the manifests, in their order.
func (c *Chart) objects(values Values, namespace string) ([]*unstructured.Unstructured, error) {
	manifests, err := c.manifests(values, namespace)
	if err != nil {
		return nil, err
	}
	return decode(manifests)
}
