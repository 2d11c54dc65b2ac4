package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/release"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

func installCommand(a *app) *cobra.Command {
	f := installFlags{app: a}
	cmd := &cobra.Command{
		Use:   "install [kubeadm|kind|k3s|aks|eks|gke|openshift]",
		Short: "Install Sluice in a cluster, or upgrade it",
		Long: `Install Sluice in a cluster, or upgrade an installation. The command first applies the CRDs, which Helm
would not update, and then the chart in this program, as a Helm release that 'helm list' shows. Repeating the command
changes nothing; after an interruption it continues. The values of earlier installs are kept, unless this command sets
others or --reset-values is given.

The images are those of the same build, as 'make images build' builds them. --set registry=REGISTRY,tag=TAG selects
others.

The CIDRs of pods and Services are detected from the configuration of the CNI, of the control plane and of the nodes,
and the output shows where each was found. Nothing is changed before all settings are known and all checks have passed.
Name the kind of cluster only if it cannot be detected.

The cluster needs an ID that differs from those of its peers, and keeps it. Without --cluster-id one is generated.

In a cluster in which Liqo runs, --adopt takes over the network when all gateways are Sluice's ('liqoctl network adopt
--all'): Liqo's controllers may write nothing of it any more, its node agents end, and Sluice's controllers and agents
go on with the same objects and addresses. Liqo's authentication and offloading stay. With --dry-run the command lists
every object that changes hands, is made or changed, and that stays. Repeat it, with the same flags, after an
interruption. 'liqoctl uninstall --hand-back' is the way back.`,
		Example: `  liqoctl install --cluster-id rome

  # Show what would be installed, and with which values (for Helm or a Git repository).
  liqoctl install --cluster-id rome --dry-run
  liqoctl install --cluster-id rome --only-output-values --dump-values-path -

  # Two pods for each gateway, behind node ports.
  liqoctl install --cluster-id rome --set networking.gatewayTemplates.replicas=2 \
    --set peering.networking.gateway.server.service.type=NodePort

  # Take over the network of Liqo.
  liqoctl network adopt --all
  liqoctl install --adopt --dry-run
  liqoctl install --adopt`,
		Args:      oneOf("kind of cluster", providerNames()...),
		ValidArgs: providerNames(),
		RunE:      f.run,
	}
	f.add(cmd.Flags())
	return cmd
}

func providerNames() (names []string) {
	for _, p := range release.Providers {
		names = append(names, string(p))
	}
	return names
}

// installFlags are the flags of install.
type installFlags struct {
	app            *app
	clusterID      string
	clusterLabels  map[string]string
	pods, services []string
	reserved       []string
	sources        release.Sources
	chartPath      string
	timeout        time.Duration
	metrics        bool
	coreDNS        bool
	adopt          bool
	resetValues    bool
	skipValidation bool
	dryRun         bool
	includeCRDs    bool
	onlyValues     bool
	valuesPath     string
	version, repo  string
	apiServerURL   string
}

func (f *installFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.clusterID, "cluster-id", "", "`ID` of this cluster, different from those of its peers: lower-case letters, digits, dashes (default generated)")
	fs.StringToStringVar(&f.clusterLabels, "cluster-labels", nil, "`LABELS` (key=value,...) that describe this cluster")
	fs.Lookup("cluster-labels").DefValue = ""
	fs.StringSliceVar(&f.pods, "pod-cidr", nil, "pod `CIDR`; may be repeated (default detected)")
	fs.StringSliceVar(&f.services, "service-cidr", nil, "Service `CIDR`; may be repeated (default detected)")
	fs.StringSliceVar(&f.reserved, "reserved-subnets", nil, "`CIDRS` of networks around the cluster, never used to remap a peer's CIDRs")
	fs.StringVar(&f.apiServerURL, "api-server-url", "", "`URL` at which other clusters reach the API server of this one (default the endpoint of Service default/kubernetes)")
	fs.StringArrayVarP(&f.sources.Files, "values", "f", nil, "`FILE` with values of the chart; - is stdin; may be repeated")
	fs.StringArrayVar(&f.sources.Set, "set", nil, "`VALUE` of the chart (path=value,...); may be repeated")
	fs.StringArrayVar(&f.sources.SetString, "set-string", nil, "like --set, but the `VALUE` is always a string")
	fs.BoolVar(&f.resetValues, "reset-values", false, "drop the values of the installed release instead of keeping them")
	fs.BoolVar(&f.metrics, "enable-metrics", false, "create a Service for the metrics of each gateway, and open the metrics port of the node agents")
	fs.BoolVar(&f.coreDNS, "coredns", false, "run a DNS server for Services of other clusters, and make the cluster's CoreDNS forward clusterset.local to it")
	fs.BoolVar(&f.adopt, "adopt", false, "take over the network of Liqo, which runs in the cluster; its authentication and offloading stay")
	fs.DurationVar(&f.timeout, "timeout", 10*time.Minute, "`TIME` to wait before giving up")
	fs.BoolVar(&f.skipValidation, "skip-validation", false, "use --pod-cidr and --service-cidr as given, even if the cluster has other addresses")
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing: print the manifests; with --adopt: list the objects that change, and those that stay")
	fs.BoolVar(&f.includeCRDs, "include-crds", false, "with --dry-run: also print the CRDs")
	fs.BoolVar(&f.onlyValues, "only-output-values", false, "change nothing: write the values of the chart to --dump-values-path")
	fs.StringVar(&f.valuesPath, "dump-values-path", "./values.yaml", "`FILE` for the values of the chart; - is stdout")
	fs.StringVar(&f.chartPath, "local-chart-path", "", "`PATH` of a chart to use instead of the built-in one")
	fs.StringVar(&f.version, "version", "", "")
	fs.StringVar(&f.repo, "repo-url", "", "")
	for name := range idleInstallFlags {
		fs.String(name, "", "")
		fs.Lookup(name).NoOptDefVal = "true"
	}
	hide(fs, append(slices.Collect(maps.Keys(idleInstallFlags)), "version", "repo-url")...)
}

// idleInstallFlags are flags of Liqo's install, and of Helm's, that do nothing here, and why.
var idleInstallFlags = map[string]string{
	"disable-telemetry":               "nothing is sent anywhere",
	"disable-kernel-version-check":    "the agents try out what a node's kernel can do",
	"reuse-values":                    "the values of the installed release are kept unless --reset-values is given",
	"disable-api-server-sanity-check": "the address of the API server is not compared with that of the kubeconfig",
}

func (f *installFlags) run(cmd *cobra.Command, args []string) error {
	o, err := f.options(cmd, args)
	if err != nil {
		return err
	}
	chart, err := f.chart()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	c, err := f.app.one(ctx)
	if err != nil {
		return err
	}
	if f.adopt {
		return f.takeOver(ctx, cmd, c, chart, o)
	}
	plan, err := release.Prepare(ctx, c, chart, version, o)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return c.Errorf("interrupted: this run changed nothing")
	}
	if err != nil {
		return err
	}
	f.tell(cmd.Flags(), plan)
	switch {
	case f.onlyValues:
		return f.writeValues(plan)
	case f.dryRun:
		return f.printManifests(plan)
	}
	if _, err := plan.Apply(ctx, f.app.console.Progress()); err != nil {
		return err
	}
	f.app.console.Info(fmt.Sprintf("Sluice %s is installed: this cluster is %s among its peers", plan.Version(), plan.ClusterID))
	return nil
}

// takeOver takes over the network of Liqo.
func (f *installFlags) takeOver(ctx context.Context, cmd *cobra.Command, c *access.Cluster, chart *release.Chart, o release.Options) error {
	if f.onlyValues || f.includeCRDs {
		return errors.New("--adopt has no --only-output-values and no --include-crds: --dry-run lists what changes")
	}
	t, err := release.PrepareTakeOver(ctx, c, chart, version, o)
	if err != nil {
		return err
	}
	f.tell(cmd.Flags(), t.Plan)
	if f.dryRun {
		return f.app.printSteps(t.Steps)
	}
	if !t.Idle() {
		if err := f.app.confirmSteps(ctx, cmd.Name(), c, t.Steps); err != nil {
			return err
		}
	}
	if _, err := t.Run(ctx, f.app.console.Progress()); err != nil {
		return err
	}
	f.app.console.Info(fmt.Sprintf("Sluice %s runs the network of this cluster, which is %s among its peers", t.Version(), t.ClusterID))
	return nil
}

// options puts together what the flags say.
func (f *installFlags) options(cmd *cobra.Command, args []string) (release.Options, error) {
	o := release.Options{
		ClusterID: f.clusterID, ClusterLabels: f.clusterLabels, Metrics: f.metrics, CoreDNS: f.coreDNS,
		ResetValues: f.resetValues, SkipValidation: f.skipValidation, APIServerURL: f.apiServerURL,
	}
	if u, err := url.Parse(f.apiServerURL); f.apiServerURL != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return o, fmt.Errorf("--api-server-url: %q is not an https URL, such as https://203.0.113.7:6443", f.apiServerURL)
	}
	if len(args) > 0 {
		o.Provider = release.Provider(args[0])
	}
	var err error
	for _, p := range []struct {
		flag  string
		texts []string
		to    *[]netip.Prefix
	}{{"pod-cidr", f.pods, &o.PodCIDRs}, {"service-cidr", f.services, &o.ServiceCIDRs}, {"reserved-subnets", f.reserved, &o.ReservedSubnets}} {
		if *p.to, err = prefixes(p.flag, p.texts); err != nil {
			return o, err
		}
	}
	if o.Values, err = f.sources.Read(cmd.InOrStdin()); err != nil {
		return o, err
	}
	o.GlobalLabels, o.GlobalAnnotations = f.app.labels, f.app.annotations
	return o, nil
}

// prefixes reads the values of a flag.
func prefixes(flag string, texts []string) (ps []netip.Prefix, err error) {
	for _, s := range texts {
		p, err := cidr.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// chart is the one in this program, unless the user has another one.
func (f *installFlags) chart() (*release.Chart, error) {
	switch {
	case f.repo != "":
		return nil, fmt.Errorf("--repo-url: the chart is in this program; --local-chart-path takes another one")
	case f.version != "" && f.version != version:
		return nil, fmt.Errorf("--version: this program installs %s: use liqoctl %s, or set the tag of the images with --set tag=%s", version, f.version, f.version)
	case f.chartPath != "":
		return release.Folder(f.chartPath, build())
	}
	return release.Embedded(build())
}

// tell says what was decided, before anything is done.
func (f *installFlags) tell(fs *pflag.FlagSet, p *release.Plan) {
	c := f.app.console
	fs.Visit(func(flag *pflag.Flag) {
		if why := idleInstallFlags[flag.Name]; why != "" {
			c.Warn(fmt.Sprintf("--%s does nothing: %s", flag.Name, why))
		}
	})
	c.Info(fmt.Sprintf("Cluster ID: %s (%s)", p.ClusterID, p.ClusterIDFrom))
	c.Info(fmt.Sprintf("Pods: %s (%s)", text.Join(p.Pods.Prefixes, ", "), p.Pods.From))
	c.Info(fmt.Sprintf("Services: %s (%s)", text.Join(p.Services.Prefixes, ", "), p.Services.From))
	for _, n := range p.Notes {
		c.Info(n)
	}
	for _, w := range p.Warnings {
		c.Warn(w)
	}
}

func (f *installFlags) writeValues(p *release.Plan) error {
	text, err := release.YAML(p.Values)
	if err != nil {
		return err
	}
	if f.valuesPath == "-" {
		_, err = fmt.Fprint(f.app.stdout, text)
		return err
	}
	if err := os.WriteFile(f.valuesPath, []byte(text), 0o600); err != nil {
		return fmt.Errorf("--dump-values-path: %w", err)
	}
	f.app.console.Info("Values written to " + f.valuesPath)
	return nil
}

func (f *installFlags) printManifests(p *release.Plan) error {
	text, err := p.DryRun(f.includeCRDs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f.app.stdout, text)
	return err
}
