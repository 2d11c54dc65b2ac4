package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// TestInstructions: what made the lab is printed as it was run, so that it can be
// repeated, and so is the way in.
func TestInstructions(t *testing.T) {
	cluster := func(name, public string) *kubelab.Cluster {
		return &kubelab.Cluster{
			Name: name, Public: netip.MustParseAddr(public), Kubeconfig: "/lab/" + name + ".yaml",
			Nodes: []*kubelab.Node{{Host: new(lab.Host)}},
		}
	}
	h := &holding{
		Lab:  &kubelab.Lab{Lab: &lab.Lab{Dir: "/lab"}, WAN: new(lab.Host)},
		rome: cluster("rome", "203.0.113.10"), milan: cluster("milan", "203.0.113.20"), bin: "/lab/bin", say: func(string) {},
	}
	h.Clusters = []*kubelab.Cluster{h.rome, h.milan}
	ran := make(chan string, 8)
	stop := errors.New("recorded, not run")
	h.run = func(_ context.Context, program string, args ...string) (string, error) {
		ran <- program + " " + strings.Join(args, " ")
		return "", stop
	}
	if err := h.install(t.Context()); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if err := h.connect(t.Context()); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	close(ran)
	text := h.instructions("  the pods\n", "http://10.71.0.3:8080/")
	lines := strings.Split(text, "\n")
	commands := 0
	for command := range ran {
		commands++
		if !slices.Contains(lines, "  "+command) {
			t.Errorf("%q was run and is not printed", command)
		}
	}
	if commands != 3 {
		t.Errorf("%d commands, want two installations and a connection", commands)
	}
	for _, want := range []string{
		"  the pods", "PATH=/lab/bin:$PATH KUBECONFIG=/lab/rome.yaml:/lab/milan.yaml bash", "-get http://10.71.0.3:8080/", "make lab-down",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "%!") {
		t.Errorf("arguments do not fit:\n%s", text)
	}
}

// TestMoreArchives: one that is not there is told of before anything is built.
func TestMoreArchives(t *testing.T) {
	there, gone := filepath.Join(t.TempDir(), "there.tar"), filepath.Join(t.TempDir(), "gone.tar")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		value string
		want  []string
		says  string
	}{{"", nil, ""}, {" " + there + " ", []string{there}, ""}, {there + " " + gone, nil, moreImages + ": stat " + gone}} {
		t.Setenv(moreImages, test.value)
		got, err := moreArchives()
		if !slices.Equal(got, test.want) || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %q, %v", test.value, got, err)
		}
	}
}
