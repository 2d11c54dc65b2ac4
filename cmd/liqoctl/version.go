package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/release"
)

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the installation in the cluster",
		Long: `Print the version of this program, and that of the installation in the cluster.

If the cluster cannot be reached, the command prints a warning and still succeeds.`,
		Example: `  liqoctl version
  liqoctl version --client -o json`,
		Args: cobra.NoArgs,
	}
	clientOnly := cmd.Flags().Bool("client", false, "print only the version of this program")
	out := a.outputFlag(cmd, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versions{Client: clientInfo{Version: clientVersion(), GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}}
		if !*clientOnly {
			installed, err := a.installedVersion(cmd.Context())
			if err != nil {
				a.console.Warn(fmt.Sprintf("the version of the installation is unknown: %v", err))
			}
			v.Server = installed
		}
		if out.given() {
			return out.data(v)
		}
		fmt.Fprintf(a.stdout, "Client version: %s\n", v.Client.Version)
		if v.Server != nil {
			fmt.Fprintf(a.stdout, "Server version: %s\n", v.Server.Version)
		}
		return nil
	}
	return cmd
}

// versions is what `version -o json` prints.
type versions struct {
	Client clientInfo  `json:"clientVersion"`
	Server *serverInfo `json:"serverVersion,omitempty"`
}

type clientInfo struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

type serverInfo struct {
	Version string `json:"version"`
	Image   string `json:"image"`
}

// clientVersion is the version that this program was built as.
func clientVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		return info.Main.Version
	}
	return cmp.Or(version, "unknown")
}

// build is what this program was built as, for those who install the images of the
// same build.
func build() release.Build { return release.Build{Version: version, Registry: registry} }

// installedVersion is the version of the controllers that the cluster runs.
func (a *app) installedVersion(ctx context.Context) (*serverInfo, error) {
	c, err := a.one(ctx)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: c.LiqoNamespace, Name: access.ControllerName}
	var d appsv1.Deployment
	if err := c.Client.Get(ctx, key, &d); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, c.Errorf("there is no Deployment %s: nothing is installed, or it is in another namespace: name that with --liqo-namespace", key)
		}
		return nil, c.Explain("read Deployment "+key.String(), err)
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == "controller-manager" || container.Name == "controller" { // which it was called by earlier versions
			return &serverInfo{Version: imageVersion(container.Image, d.Labels[versionLabel]), Image: container.Image}, nil
		}
	}
	return nil, c.Errorf("Deployment %s has no container named controller-manager: it does not belong to Sluice", key)
}

// versionLabel is the recommended label of Kubernetes.
const versionLabel = "app.kubernetes.io/version"

// imageVersion is the version of an image: its tag, unless that tells nothing and
// a label says more.
func imageVersion(image, label string) string {
	name, digest, _ := strings.Cut(image, "@")
	base := name[strings.LastIndex(name, "/")+1:] // a registry may have a port
	_, tag, _ := strings.Cut(base, ":")
	if tag == "" || tag == "latest" {
		return cmp.Or(label, tag, digest, "latest")
	}
	return tag
}
