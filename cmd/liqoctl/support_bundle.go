package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/bundle"
	"github.com/sluice-net/sluice/admin/doctor"
)

func supportBundleCommand(a *app) *cobra.Command {
	b := &bundleRun{app: a}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Pack everything that a problem report needs, without secrets, into one archive",
		Long: `Pack what a problem report needs into one .tar.gz: versions, the objects of networking.liqo.io and
ipam.liqo.io, Deployments, pods, Services, events and network policies of the installation and of the gateways, nodes,
logs (also of the containers before their last restart), the status of gateways and node agents, and the findings of
'liqoctl network doctor'. With --remote-kubeconfig, the archive covers both clusters. A README.md in the archive
explains its files.

Secrets are not read, values of environment variables and unknown annotations are left out, and anything in texts that
looks like a private key, a token or a password is removed. IP addresses, names and public keys are NOT left out, as a
network problem cannot be understood without them: look through the archive before you publish it.

Objects that you may not read, and a cluster that does not answer, are listed in manifest.json; the rest is packed. No
file is overwritten, and only you can read the new one.`,
		Example: `  liqoctl support bundle

  # Both clusters, to a file of your choice.
  liqoctl support bundle --remote-kubeconfig milan.yaml --output-file rome-milan.tar.gz`,
		Args: cobra.NoArgs,
	}
	a.addRemoteFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&b.file, "output-file", "o", "", "`FILE` to write; - is stdout (default sluice-support-TIME.tar.gz)")
	flags.DurationVar(&b.options.Timeout, "timeout", bundle.DefaultTimeout, "`TIME` to collect at most; what has arrived by then is packed")
	flags.Int64Var(&b.logKiB, "log-size", bundle.DefaultLogBytes>>10, "`KIB` to pack from the end of each log")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) }
	return cmd
}

// bundleRun is one call of the command.
type bundleRun struct {
	*app
	file    string
	logKiB  int64
	options bundle.Options
}

func (b *bundleRun) run(ctx context.Context) error {
	if b.logKiB <= 0 || b.options.Timeout <= 0 {
		return errors.New("--log-size and --timeout must be above 0")
	}
	if b.file == "-" && b.console.Width() > 0 {
		return errors.New("cannot write an archive to a terminal: redirect stdout, or name a file with --output-file")
	}
	clusters, err := b.clusters()
	if err != nil {
		return err
	}
	b.options.Version, b.options.Time, b.options.LogBytes = clientVersion(), time.Now(), b.logKiB<<10
	b.options.Findings = func(ctx context.Context) (any, error) {
		o := doctor.Options{Version: b.options.Version}
		for _, c := range clusters {
			o.Clusters = append(o.Clusters, doctor.Target{Name: c.Name, Origin: c.Origin, Cluster: c})
		}
		return doctor.Examine(ctx, o, nil)
	}
	file, done, err := b.create()
	if err != nil {
		return err
	}
	summary, err := bundle.Write(ctx, file, b.options, b.console.Progress(), clusters...)
	if err = done(err); err != nil {
		return err
	}
	for _, line := range gapLines(summary.Gaps) {
		b.console.Warn(line)
	}
	b.console.Info(fmt.Sprintf("%d files packed, %d KiB of text: look through them before you share them", summary.Files, summary.Bytes>>10))
	if b.file != "-" {
		fmt.Fprintln(b.stdout, b.file)
	}
	return nil
}

// clusters are one or two. They are not asked yet: one that does not answer is
// part of the report.
func (b *bundleRun) clusters() ([]*access.Cluster, error) {
	if !b.remote.given() {
		c, err := b.local.connect()
		return []*access.Cluster{c}, err
	}
	b.local.name, b.remote.name = access.Local, access.Remote
	local, err1 := b.local.connect()
	remote, err2 := b.remote.connect()
	return []*access.Cluster{local, remote}, errors.Join(err1, err2)
}

// create makes the file, which must not exist, for its user alone. done removes it
// again after an error.
func (b *bundleRun) create() (w io.Writer, done func(error) error, err error) {
	if b.file == "-" {
		return b.stdout, func(err error) error { return err }, nil
	}
	b.file = cmp.Or(b.file, bundle.Folder(b.options.Time)+".tar.gz")
	f, err := os.OpenFile(b.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("%s already exists: name another file with --output-file", b.file)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create the archive: %w; name another file with --output-file", err)
	}
	return f, func(err error) error {
		if err = errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		return nil
	}, nil
}

// maxGapLines is how much of what is missing is told; the archive tells all.
const maxGapLines = 6

// gapLines are the reasons why something is missing, each with what it is about.
func gapLines(gaps []bundle.Gap) (lines []string) {
	about := make(map[string][]string)
	var reasons []string
	for _, g := range gaps {
		why := g.Why
		if g.Cluster != "" {
			why = "(" + g.Cluster + ") " + why
		}
		if about[why] == nil {
			reasons = append(reasons, why)
		}
		about[why] = append(about[why], g.What)
	}
	for i, why := range reasons {
		if i == maxGapLines {
			return append(lines, fmt.Sprintf("and more files are missing for %d other reasons: see manifest.json", len(reasons)-i))
		}
		what := about[why]
		if len(what) > 3 {
			what = append(what[:3:3], fmt.Sprintf("and %d more", len(what)-3))
		}
		lines = append(lines, fmt.Sprintf("%s: not packed: %s", why, strings.Join(what, ", ")))
	}
	return lines
}
