package bundle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

// Defaults of Options.
const (
	DefaultTimeout  = 5 * time.Minute
	DefaultLogBytes = 1 << 20
	DefaultMaxBytes = 128 << 20
)

// Options say how much is packed.
type Options struct {
	// Version is that of the program that packs.
	Version string
	// Time is when; it names the folder in the archive. Zero: now.
	Time time.Time
	// Timeout bounds the gathering; what came until then is packed. Zero:
	// DefaultTimeout.
	Timeout time.Duration
	// LogBytes bounds the log of one container, of which the end is packed. Zero:
	// DefaultLogBytes.
	LogBytes int64
	// MaxBytes bounds everything, before it is compressed. Zero: DefaultMaxBytes.
	MaxBytes int
	// Findings returns what `liqoctl network doctor -o json` prints. Nil: it is not
	// asked.
	Findings func(context.Context) (any, error)
}

func (o Options) withDefaults() Options {
	if o.Time.IsZero() {
		o.Time = time.Now()
	}
	o.Time = o.Time.UTC().Truncate(time.Second)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.LogBytes = cmp.Or(o.LogBytes, DefaultLogBytes)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	return o
}

// Summary is what was packed.
type Summary struct {
	Files int
	Bytes int // before compression
	// Gaps is what is missing.
	Gaps []Gap
}

// Folder is the name of the folder in an archive.
func Folder(at time.Time) string { return "sluice-support-" + at.UTC().Format("20060102-150405") }

// Write gathers from all clusters what a problem report needs, and writes the
// archive. What cannot be read is a Gap. The error is for an archive that cannot
// be written, or would hold nothing, and for an interruption.
func Write(ctx context.Context, w io.Writer, o Options, tell progress.Func, clusters ...*access.Cluster) (Summary, error) {
	o = o.withDefaults()
	a := newArchive(o.MaxBytes)
	gathering, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	gatherers := make([]*gatherer, len(clusters))
	tell = tell.Serial()
	var wg sync.WaitGroup
	for i, c := range clusters {
		gatherers[i] = newGatherer(c, a, o, tell)
		wg.Go(func() { gatherers[i].gather(gathering) })
	}
	var judging sync.WaitGroup
	if o.Findings != nil {
		judging.Go(func() {
			findings, err := o.Findings(gathering)
			if gathering.Err() != nil {
				return // time was up, which is said below
			}
			a.miss("", "what is wrong, as 'liqoctl network doctor' sees it", err)
			if err == nil {
				a.addData("", "doctor.json", findings)
			}
		})
	}
	wg.Wait()
	err := unreachable(gatherers)
	if err != nil {
		cancel()
	}
	judging.Wait()
	if ctx.Err() != nil {
		return Summary{}, fmt.Errorf("gather: %w", ctx.Err())
	}
	if err != nil {
		return Summary{}, err
	}
	if gathering.Err() != nil {
		a.miss("", "everything that is missing without a reason", fmt.Errorf("time was up after %v", o.Timeout))
	}
	tell.Waiting("", "Removing secrets and packing")
	a.sortGaps()
	a.scrub()
	if err := a.describe(o, gatherers); err != nil {
		return Summary{}, err
	}
	if err := a.writeTo(w, Folder(o.Time), o.Time); err != nil {
		return Summary{}, err
	}
	return Summary{Files: len(a.files), Bytes: a.size, Gaps: a.gaps}, nil
}

// unreachable is an error if no cluster gave anything.
func unreachable(all []*gatherer) error {
	var errs []error
	for _, g := range all {
		if g.failure == nil {
			return nil
		}
		errs = append(errs, g.failure)
	}
	return errors.Join(errs...)
}

// manifest is manifest.json.
type manifest struct {
	Format   string            `json:"format"`
	Made     time.Time         `json:"made"`
	By       string            `json:"by"`
	Clusters []manifestCluster `json:"clusters"`
	Missing  []Gap             `json:"missing"`
	Files    []manifestFile    `json:"files"`
}

type manifestCluster struct {
	Folder     string `json:"folder"`
	ID         string `json:"id,omitempty"`
	UID        string `json:"uid,omitempty"`
	APIServer  string `json:"apiServer"`
	Kubernetes string `json:"kubernetes,omitempty"`
	Version    string `json:"version,omitempty"`
}

type manifestFile struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// format changes with the layout of the archive.
const format = "sluice-support/1"

// describe adds the files that tell what the others are.
func (a *archive) describe(o Options, all []*gatherer) error {
	m := manifest{Format: format, Made: o.Time, By: "liqoctl " + o.Version, Missing: a.gaps, Clusters: []manifestCluster{}, Files: []manifestFile{}}
	if m.Missing == nil {
		m.Missing = []Gap{}
	}
	for _, g := range all {
		m.Clusters = append(m.Clusters, g.about)
	}
	a.files[readmeFile] = readme(m)
	for _, name := range sortedNames(a.files) {
		m.Files = append(m.Files, manifestFile{name, len(a.files[name])})
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	a.files["manifest.json"] = append(b, '\n')
	return nil
}
