package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/deploy/images"
)

func TestFlags(t *testing.T) {
	got, to, err := parseFlags([]string{"-o", "out", "--version=v1", "--platform", "linux/arm64", "--program=gateway,prober", "--registry=r.example/s", "--push", "--load=k3s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	all := images.Programs()
	want := images.Options{Out: "out", Version: "v1", Registry: "r.example/s", Platforms: []string{"linux/arm64"}, Programs: []images.Program{all[2], all[4]}}
	if diff := cmp.Diff(want, got); diff != "" || to != (destination{push: true, load: "k3s"}) {
		t.Errorf("destination: %+v, options (-want +got):\n%s", to, diff)
	}
}

func TestFlagsRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"gateway"}, "--help"},
		{[]string{"--load=docker"}, `--load: nothing loads images into "docker": it must be containerd, k3s, kind or kind:CLUSTER`},
		{[]string{"--program=liqoctl"}, "must be one of controller, fabric, gateway, virtualkubelet, prober, clusterdns"},
	} {
		if _, _, err := parseFlags(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.args, err, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
	for _, want := range []string{"Usage:", "NAME.spdx.json", "--push", "Examples:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("--help does not mention %s", want)
		}
	}
}

// TestNext is about commands that can be copied as they are printed.
func TestNext(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "gateway.tar")
	if err := os.WriteFile(archive, make([]byte, 1_500_000), 0o644); err != nil {
		t.Fatal(err)
	}
	i := images.Image{Name: "gateway", Reference: "sluice.local/gateway:v1", Digest: "sha256:0", Layout: "out/gateway", Archive: archive, SBOM: "out/gateway.spdx.json"}
	var out bytes.Buffer
	if err := describe(&out, i); err != nil {
		t.Fatal(err)
	}
	next(&out, i)
	for _, want := range []string{
		"sluice.local/gateway:v1\n", "sha256:0", "(1.5 MB)", "ctr -n k8s.io images import " + archive + "\n", "docker load -i " + archive + "\n",
		"skopeo copy --all oci:out/gateway:v1 docker://sluice.local/gateway:v1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
