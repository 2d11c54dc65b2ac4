package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// localAlone are the commands for two clusters that also do something for the local one alone. All others refuse.
var localAlone = []string{
	"network status", "network doctor", "network capture", "network drops", "network trace", "network adopt", "expose service", "console", "support bundle",
}

// TestRemoteIsNeverAmbient runs the examples of every command for two clusters with the local one named and the remote one
// not: that is never taken from the environment, and a command that needs it says so before it asks a cluster anything.
func TestRemoteIsNeverAmbient(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without a browser
	t.Chdir(t.TempDir())          // where archives are written
	var asked atomic.Int64
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.NotFound(w, r)
	}))
	defer local.Close()
	ambient := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the cluster of the environment is asked for %s", r.URL)
		http.NotFound(w, r)
	}))
	defer ambient.Close()
	unreadable := filepath.Join(t.TempDir(), "unreadable")
	if err := os.WriteFile(unreadable, []byte("a: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	named := []string{"--kubeconfig", kubeconfigFor(t, local.URL)}
	type surroundings struct {
		kubeconfig string
		flags      []string
	}
	var all []surroundings
	for _, kubeconfig := range []string{kubeconfigFor(t, ambient.URL), unreadable} {
		// The second flag tells something of a remote cluster, and not which one it is.
		all = append(all, surroundings{kubeconfig, named}, surroundings{kubeconfig, append(named, "--remote-liqo-namespace=x")},
			surroundings{kubeconfig, append(named, "--remote-kubeconfig=")})
	}

	var found []string
	for _, c := range commands(t) {
		if !c.Runnable() || c.HasSubCommands() || c.Flag("remote-kubeconfig") == nil {
			continue
		}
		name := strings.TrimPrefix(c.CommandPath(), "liqoctl ")
		found = append(found, name)
		t.Run(name, func(t *testing.T) {
			lines, refused := 0, true
			mayWork := slices.Contains(localAlone, name)
			for _, words := range exampleLines(c.Example) {
				if is, _, err := c.Root().Find(words); err != nil || is != c {
					continue
				}
				lines++
				for _, s := range all {
					args := slices.Concat(unnamed(c, words), s.flags)
					t.Setenv("KUBECONFIG", s.kubeconfig)
					asked.Store(0)
					got := untilOutput(t, args)
					if said := got.stdout + got.stderr; strings.Contains(said, s.kubeconfig) || strings.Contains(said, ambient.URL) {
						t.Errorf("%q looks at the kubeconfig of the environment: %+v", args, got)
					}
					refuses := got.code == 1 && asked.Load() == 0 && got.stdout == "" && strings.Contains(got.stderr, "--remote-kubeconfig")
					if !refuses && !mayWork {
						t.Errorf("%q, after %d requests to the local cluster: %+v; want a refusal that names --remote-kubeconfig", args, asked.Load(), got)
					}
					refused = refused && refuses
				}
			}
			switch {
			case lines == 0:
				t.Error("it has no example to run")
			case refused && mayWork:
				t.Error("no example of it does anything for the local cluster alone")
			}
		})
	}
	for _, name := range localAlone {
		if !slices.Contains(found, name) {
			t.Errorf("there is no command %s for two clusters", name)
		}
	}
}

// TestRemotesOfFiles: where -p names the remote clusters, a flag about them names no other one.
func TestRemotesOfFiles(t *testing.T) {
	t.Setenv("KUBECONFIG", "/ambient")
	got := liqoctl(t.Context(), strings.Fields("test network --kubeconfig /rome -p /milan --remote-liqo-namespace x")...)
	if got.code != 1 || !strings.Contains(got.stderr, "(local) kubeconfig /rome cannot be read") || !strings.Contains(got.stderr, "(remote) kubeconfig /milan cannot be read") ||
		strings.Count(got.stderr, "\n") != 2 {
		t.Errorf("%+v", got)
	}
}

// unnamed is a command line without the flags that name clusters.
func unnamed(c *cobra.Command, words []string) (rest []string) {
	for i := 0; i < len(words); i++ {
		name, _, valued := strings.Cut(words[i], "=")
		var flag *pflag.Flag
		if long, ok := strings.CutPrefix(name, "--"); ok {
			flag = c.Flag(long)
		} else if len(name) == 2 && name[0] == '-' {
			flag = c.Flags().ShorthandLookup(name[1:])
		}
		switch {
		case flag == nil || !strings.HasPrefix(flag.Name, "remote-") && flag.Name != "kubeconfig" && flag.Name != "context":
			rest = append(rest, words[i])
		case !valued && flag.NoOptDefVal == "":
			i++ // its value
		}
	}
	return rest
}

// untilOutput runs the program, with Ctrl-C when it writes to stdout: what it would go on with then works on the local cluster.
func untilOutput(t *testing.T, args []string) (got result) {
	t.Helper()
	ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
	defer interrupt()
	var stdout, stderr bytes.Buffer
	got.code = run(ctx, append([]string{"liqoctl"}, args...), strings.NewReader(""), writerFunc(func(b []byte) (int, error) {
		interrupt()
		return stdout.Write(b)
	}), &stderr)
	if ctx.Err() == context.DeadlineExceeded {
		t.Errorf("%q does not end", args)
	}
	got.stdout, got.stderr = stdout.String(), stderr.String()
	return got
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
