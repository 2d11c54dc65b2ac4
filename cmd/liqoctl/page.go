package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/page"
)

func consoleCommand(a *app) *cobra.Command {
	r := &pageRun{app: a}
	cmd := &cobra.Command{
		Use:   "console [CONTEXT...]",
		Short: "Show clusters and peerings in the browser: map, plots, traces, drops, checks",
		Long: `Show clusters and peerings on a page in the browser: a map of clusters, nodes and peerings, with the
doctor's findings for a peering that is down; plots of the gateways' traffic over the last hour, or the last month with
--prometheus; the path of a packet; dropped packets; the doctor's checks; and a button for a support bundle.

Without arguments, the page shows the cluster that the other commands would use, and the remote cluster if
--remote-kubeconfig or --remote-context names one. With arguments, it shows the clusters of these contexts of the
kubeconfig, up to 64. If the page shows both clusters of a peering, it shows both ends.

The page is served on this machine only, on loopback, while the command runs. It works with your rights in the clusters,
installs nothing and changes nothing. Clusters are read while a page is open. The page's address contains a token:
whoever has it sees everything that you may see. To see the page of a machine that you reach by SSH:

  ssh -L 4711:127.0.0.1:4711 HOST liqoctl console --no-browser --port 4711`,
		Example: `  # The current context.
  liqoctl console

  # Both ends of a peering.
  liqoctl console --kubeconfig rome.yaml --remote-kubeconfig milan.yaml

  # Several clusters of one kubeconfig.
  liqoctl console rome milan turin

  # Plots of up to a month, from a Prometheus that distinguishes clusters by a label.
  liqoctl console rome milan --prometheus 'rome=http://localhost:9090?cluster=rome' \
    --prometheus 'milan=http://localhost:9090?cluster=milan'`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return contextNames(a.local.kube.ToRawKubeConfigLoader()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	a.addRemoteFlags(cmd)
	fs := cmd.Flags()
	fs.Uint16Var(&r.port, "port", 0, "`PORT` to listen on, on loopback (default any free one)")
	fs.StringArrayVar(&r.prometheus, "prometheus", nil, "`[CLUSTER-ID=]URL` of the Prometheus that stores metrics of gateways, for plots of more than an hour")
	fs.BoolVar(&r.noBrowser, "no-browser", false, "do not open a browser")
	fs.DurationVar(&r.interval, "interval", page.DefaultInterval, "`TIME` between two readings of a cluster")
	cmd.RunE = func(cmd *cobra.Command, contexts []string) error { return r.run(cmd.Context(), contexts) }
	return cmd
}

// pageRun is one call of the command.
type pageRun struct {
	*app
	port       uint16
	prometheus []string
	noBrowser  bool
	interval   time.Duration
}

func (r *pageRun) run(ctx context.Context, contexts []string) error {
	if r.interval < time.Second {
		return fmt.Errorf("--interval %v would burden the API servers: use at least 1s", r.interval)
	}
	clusters, err := r.clusters(contexts)
	if err != nil {
		return err
	}
	past, err := prometheusOf(r.prometheus)
	if err != nil {
		return err
	}
	server, err := page.New(page.Config{Version: clientVersion(), Clusters: clusters, Prometheus: past, Interval: r.interval}, r.port)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.stdout, server.URL())
	r.console.Info("Ctrl-C ends the page. Keep its address to yourself: whoever has it sees everything that you may see")
	ctx, cancel := context.WithCancel(ctx)
	var browser sync.WaitGroup
	defer browser.Wait()
	defer cancel()
	if !r.noBrowser {
		browser.Go(func() {
			if err := openBrowser(ctx, server.URL(), server.Opened()); err != nil && ctx.Err() == nil {
				r.console.Warn(fmt.Sprintf("cannot open a browser: %v; open the address above yourself", err))
			}
		})
	}
	return server.Run(ctx)
}

// prometheusOf reads values of --prometheus.
func prometheusOf(values []string) (map[string]*page.Prometheus, error) {
	out := make(map[string]*page.Prometheus)
	for _, v := range values {
		id, address, named := strings.Cut(v, "=")
		if !named || strings.Contains(id, "/") { // a parameter of the address
			id, address = "", v
		}
		p, err := page.NewPrometheus(address)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--prometheus: %w", err)
		case out[id] != nil:
			return nil, fmt.Errorf("--prometheus: two addresses for %q: write CLUSTER-ID=URL, one for each cluster", id)
		}
		out[id] = p
	}
	return out, nil
}

// clusters are those to show. They are not asked yet: of one that does not answer the
// page says why.
func (r *pageRun) clusters(contexts []string) (out []*access.Cluster, err error) {
	named := []*clusterFlags{r.local}
	if len(contexts) > 0 {
		if r.local.flags.Changed("context") {
			return nil, errors.New("name contexts either with --context or as arguments, not both")
		}
		named = nil
		for _, name := range contexts {
			f, err := r.inContext(name)
			if err != nil {
				return nil, err
			}
			named = append(named, f)
		}
	}
	if r.remote.given() {
		named = append(named, r.remote)
	}
	for _, f := range named {
		c, err := f.connect()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// inContext are the flags for the local cluster with another context.
func (r *pageRun) inContext(name string) (*clusterFlags, error) {
	f := r.newClusterFlags("")
	err := f.flags.Set("context", name)
	r.local.flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Changed {
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			err = errors.Join(err, f.flags.Set(flag.Name, v))
		}
	})
	return f, err
}

// openBrowser has the user's browser open an address. Command lines can be read by
// everybody on a machine, so the browser is given a file, which leads to the address and
// only the user can read, until opened is closed. Some systems have a program that runs
// the browser itself: it ends when the browser is closed, or with ctx.
func openBrowser(ctx context.Context, url string, opened <-chan struct{}) error {
	dir, err := os.MkdirTemp("", "sluice-console-") // nobody else may enter it
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "open.html")
	// The address is made of digits, letters, and what URLs need.
	text := fmt.Sprintf("<!doctype html><meta charset=utf-8><title>Sluice</title><meta http-equiv=refresh content=\"0;url=%s\"><a href=\"%[1]s\">Sluice</a>\n", url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	argv := []string{"xdg-open", file}
	switch runtime.GOOS {
	case "darwin":
		argv[0] = "open"
	case "windows":
		argv = []string{"rundll32", "url.dll,FileProtocolHandler", file}
	}
	ended := make(chan error, 1)
	go func() { ended <- exec.CommandContext(ctx, argv[0], argv[1:]...).Run() }()
	select {
	case <-opened:
		_ = os.RemoveAll(dir)
		return <-ended
	case err := <-ended:
		if err != nil {
			return err
		}
	}
	select {
	case <-opened:
	case <-ctx.Done():
	}
	return nil
}
