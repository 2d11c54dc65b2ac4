package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/exec"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/pcapng"
)

// TestCaptureCommand: what runs in the pod.
func TestCaptureCommand(t *testing.T) {
	r := captureRun{points: []string{"node", "wire"}, duration: time.Minute, snaplen: 64, count: 7, maxSize: "1GB", filter: "tcp port 80"}
	want := "gateway capture -w - --until-eof --point node,wire --duration 1m0s --snaplen 64 --count 7 --max-size 1GB --filter tcp port 80"
	if got := strings.Join(r.command(), " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	r.filter = ""
	if got := strings.Join(r.command(), " "); got != strings.TrimSuffix(want, " --filter tcp port 80") {
		t.Errorf("got %s", got)
	}
}

// TestCaptureErrors: an end is none, and what the gateway refuses is told in its own
// words.
func TestCaptureErrors(t *testing.T) {
	c := &access.Cluster{Options: access.Options{Name: access.Local}}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	exit := exec.CodeExitError{Err: errors.New("command terminated with exit code 1"), Code: 1}
	broken := errors.New("unexpected EOF")
	for name, tt := range map[string]struct {
		ctx    context.Context
		totals pcapng.Totals
		err    error
		want   string
	}{
		"a limit":          {t.Context(), pcapng.Totals{Packets: 3, End: "5s are over"}, nil, ""},
		"Ctrl-C":           {interrupted, pcapng.Totals{Packets: 3, Bytes: 900}, context.Canceled, ""},
		"Ctrl-C too early": {interrupted, pcapng.Totals{}, context.Canceled, "context canceled"},
		"broken":           {t.Context(), pcapng.Totals{Packets: 3, Bytes: 900}, broken, "unexpected EOF"},
		"without an end":   {t.Context(), pcapng.Totals{Packets: 3, Bytes: 900}, nil, "(local) the capture broke off early"},
		"refused": {t.Context(), pcapng.Totals{}, c.Explain("run x", fmt.Errorf("gateway: --filter: column 1: no\n  x\n  ^\nTry 'gateway --help'.: %w", exit)),
			"(local) the gateway refuses: --filter: column 1: no\n  x\n  ^"},
		"refused later": {t.Context(), pcapng.Totals{}, c.Explain("run x", fmt.Errorf("gateway: two captures are under way: %w", exit)),
			"(local) the gateway refuses: two captures are under way"},
		"no gateway": {t.Context(), pcapng.Totals{}, c.Explain("run x", fmt.Errorf("not found: %w", exit)), "(local) run x: not found: command terminated with exit code 1"},
	} {
		err := captureError(c, tt.ctx, tt.totals, tt.err)
		if got := fmt.Sprint(err); (err != nil || tt.want != "") && got != tt.want {
			t.Errorf("%s: got %s\nwant %s", name, got, tt.want)
		}
	}
}

func TestCapturePod(t *testing.T) {
	c := &access.Cluster{}
	pods := []survey.Pod{{Namespace: "liqo-tenant-milan", Name: "gw-milan-1", Active: true}, {Name: "gw-milan-2"}}
	pod, err := capturePod(c, &survey.Cluster{}, &survey.Peer{ID: "milan", Gateway: &survey.Gateway{Pods: pods}})
	if err != nil || pod.String() != "liqo-tenant-milan/gw-milan-1" {
		t.Errorf("%v, %v", pod, err)
	}
	liqos := []survey.Pod{{Namespace: "liqo-tenant-milan", Name: "gw-milan-1", Active: true, OfLiqo: true}}
	for want, peer := range map[string]*survey.Peer{
		"pod liqo-tenant-milan/gw-milan-1 is of Liqo's gateway, which shows no packets: 'liqoctl network adopt milan' hands it over to Sluice's, which does": {
			ID: "milan", Gateway: &survey.Gateway{Pods: liqos},
		},
		"the peering with milan has no gateway: 'liqoctl network doctor milan' finds out what is missing": {ID: "milan"},
		"no pod of GatewayServer a/b carries traffic now: 'liqoctl network doctor milan' finds out why":   {ID: "milan", Gateway: &survey.Gateway{Kind: "GatewayServer", Namespace: "a", Name: "b", Pods: pods[1:]}},
		"no pod of GatewayClient a/b carries traffic now: 'liqoctl network doctor milan' finds out why":   {ID: "milan", Gateway: &survey.Gateway{Kind: "GatewayClient", Namespace: "a", Name: "b"}},
	} {
		if _, err := capturePod(c, &survey.Cluster{}, peer); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// TestCapturePodUnseen: what the user may not read is not said to be missing.
func TestCapturePodUnseen(t *testing.T) {
	for kind, peer := range map[string]*survey.Peer{
		"GatewayServer": {ID: "milan"}, "GatewayClient": {ID: "milan"}, "Pod": {ID: "milan", Gateway: &survey.Gateway{Kind: "GatewayClient"}},
	} {
		refused := errors.New("read " + kind + "s: the user may not do this")
		s := &survey.Cluster{Gaps: []survey.Gap{{Kind: "Node", Err: errors.New("read Nodes")}, {Kind: kind, Err: refused}}}
		if _, err := capturePod(&access.Cluster{}, s, peer); !errors.Is(err, refused) {
			t.Errorf("got %v\nwant %v", err, refused)
		}
	}
}

// TestCaptureFile: it is made by what is in it, for the user alone, and does not
// replace one that the user has not named.
func TestCaptureFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), captureName("milan", time.Date(2026, 11, 21, 19, 4, 33, 0, time.UTC)))
	if filepath.Base(path) != "milan-20261121-190433.pcapng" {
		t.Error(path)
	}
	f := &captureFile{name: path, fresh: true}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is there too early: %v", err)
	}
	for _, b := range []string{"one ", "two"} {
		if _, err := f.Write([]byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	info, err2 := os.Stat(path)
	if err != nil || err2 != nil || string(b) != "one two" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v, %v", b, err, info, err2)
	}
	if _, err := (&captureFile{name: path, fresh: true}).Write([]byte("x")); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second of that name: %v", err)
	}
	got := liqoctl(t.Context(), "network", "capture", "--kubeconfig", "nowhere", "-w", path)
	got.want(t, "a file that is there", "", " ERRO   -w "+path+": this file already exists: name another one, or overwrite it with --force\n")
	for _, args := range [][]string{{"-w", path, "--force"}, {"-w", os.DevNull}, {"-w", path + "2"}} {
		got := liqoctl(t.Context(), append([]string{"network", "capture", "--kubeconfig", "nowhere"}, args...)...)
		if !strings.Contains(got.stderr, "kubeconfig nowhere cannot be read") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if err := (&captureFile{name: path}).close(); err != nil {
		t.Error(err)
	}
}

// TestCaptureCannotWrite: what is in the way of the file is told before a cluster is asked.
func TestCaptureCannotWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, want string }{
		{dir, "this is a directory: name a file in it, such as " + filepath.Join(dir, "capture.pcapng")},
		{filepath.Join(dir, "none", "x.pcapng"), "there is no directory " + filepath.Join(dir, "none") + ": create it, or name another file"},
		{filepath.Join(file, "x.pcapng"), "not a directory: name another file"},
	} {
		for _, force := range []string{"--force=false", "--force"} {
			got := liqoctl(t.Context(), "network", "capture", "--kubeconfig", "nowhere", "-w", tt.file, force)
			got.want(t, tt.file, "", " ERRO   -w "+tt.file+": "+tt.want+"\n")
		}
	}
	if os.Getuid() != 0 { // whom no mode stops
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		got := liqoctl(t.Context(), "network", "capture", "--kubeconfig", "nowhere", "-w", filepath.Join(closed, "x"))
		got.want(t, closed, "", " ERRO   -w "+filepath.Join(closed, "x")+": you may not write here: name another file\n")
	}
	fresh := filepath.Join(dir, "x.pcapng")
	liqoctl(t.Context(), "network", "capture", "--kubeconfig", "nowhere", "-w", fresh)
	if _, err := os.Stat(fresh); !os.IsNotExist(err) {
		t.Errorf("the check leaves a file: %v", err)
	}
}

// TestCaptureFailure: the file remembers why it could not be written, as the connection ends without a reason then.
func TestCaptureFailure(t *testing.T) {
	f := &captureFile{name: t.TempDir()}
	if _, err := f.Write([]byte("x")); err == nil || f.failure != err {
		t.Errorf("%v, remembered %v", err, f.failure)
	}
}

func TestSizeText(t *testing.T) {
	got := map[uint64]string{}
	want := map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 12_345: "12.3 kB", 100_000_000: "100.0 MB", 2_500_000_000: "2.50 GB"}
	for n := range want {
		got[n] = sizeText(n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
