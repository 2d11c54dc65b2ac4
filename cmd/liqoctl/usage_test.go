package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsageMistakes: one line says what is wrong and where to read on.
func TestUsageMistakes(t *testing.T) {
	tests := []struct{ args, want string }{
		{"networ", `unknown command "networ", did you mean network?; see 'liqoctl --help'`},
		{"nonsense", `unknown command "nonsense"; see 'liqoctl --help'`},
		{"network conect", `unknown command "conect", did you mean connect?; see 'liqoctl network --help'`},
		{"network connect to rome", `unknown command "to" for "liqoctl network connect"; see 'liqoctl network connect --help'`},
		{"version --clinet", `unknown flag: --clinet, did you mean --client?; see 'liqoctl version --help'`},
		{"network connect --remote-kubeconfg x", `unknown flag: --remote-kubeconfg, did you mean --remote-kubeconfig?; see 'liqoctl network connect --help'`},
		{"network connect --gw-server-service", `unknown flag: --gw-server-service; see 'liqoctl network connect --help'`},
		{"version --nothing-like-it", `unknown flag: --nothing-like-it; see 'liqoctl version --help'`},
		{"version -x", `unknown shorthand flag: 'x' in -x; see 'liqoctl version --help'`},
		{"version -o xml", `invalid argument "xml" for "-o, --output" flag: "xml" is not one of json, yaml; see 'liqoctl version --help'`},
		{"version -v=many", `invalid argument "many" for "-v, --verbose" flag: "many" is not a level: use 0 to 10; see 'liqoctl version --help'`},
		{"create gatewayserver", `expected one NAME for the object, got 0; see 'liqoctl create gatewayserver --help'`},
		{"create gatewayserver x", `required flag(s) "remote-cluster-id" not set; see 'liqoctl create gatewayserver --help'`},
		{"create gatewayserver x --remote-cluster-id Milan", `--remote-cluster-id "Milan": must be lower-case letters, digits and dashes, at most 63; see 'liqoctl create gatewayserver --help'`},
		{"get nonce --remote-cluster-id Rome", `--remote-cluster-id "Rome": must be lower-case letters, digits and dashes, at most 63; see 'liqoctl get nonce --help'`},
		{"get kubeconfig --remote-cluster-id rome", `expected one NAME for the object, got 0; see 'liqoctl get kubeconfig --help'`},
		{"force unpeer", `expected one ID, that of the cluster that is gone, as 'liqoctl info' shows it; got []; see 'liqoctl force unpeer --help'`},
		{"delete server", `expected the NAME of one or more objects, got none; see 'liqoctl delete gatewayserver --help'`},
		{"nosuch --help", `unknown command "nosuch"; see 'liqoctl --help'`},
		{"networ -h", `unknown command "networ", did you mean network?; see 'liqoctl --help'`},
		{"network conect --help", `unknown command "conect", did you mean connect?; see 'liqoctl network --help'`},
		{"completion tcsh", `"tcsh" is no known shell: use one of bash, zsh, fish, powershell; see 'liqoctl completion --help'`},
		{"completion bash zsh", `expected one shell at most, got 2: bash, zsh; see 'liqoctl completion --help'`},
		{"install minikube", `"minikube" is no known kind of cluster: use one of kubeadm, kind, k3s, aks, eks, gke, openshift; see 'liqoctl install --help'`},
		{"man", `expected one DIR, the directory for the pages; got 0; see 'liqoctl man --help'`},
		{"network connect --mtu abc", `--mtu "abc": must be a whole number; see 'liqoctl network connect --help'`},
		{"network connect --timeout 5", `--timeout "5": must be a time, such as 30s, 5m or 1h30m; see 'liqoctl network connect --help'`},
		{"version --client=maybe", `--client "maybe": must be true or false; see 'liqoctl version --help'`},
		{"network connect --global-labels x", `--global-labels "x": must be key=value, several separated by commas; see 'liqoctl network connect --help'`},
		{"network adopt milan --remote-kubeconfig milan.yaml", `adopt changes one cluster, that of --kubeconfig and --context: leave out the flags of the remote one`},
		{"help nonsense", `there is no command "nonsense": 'liqoctl --help' lists the commands`},
	}
	for _, tt := range tests {
		liqoctl(t.Context(), strings.Fields(tt.args)...).want(t, tt.args, "", " ERRO   "+tt.want+"\n")
	}
}

// TestHelpBesideArguments: what is no name of a command is none of the business of help.
func TestHelpBesideArguments(t *testing.T) {
	for _, args := range []string{"--help", "network --help", "network", "network drops milan --help", "help network drops", "--kubeconfig x --help", "delete resourceslice --help", "delete tenant -h"} {
		got := liqoctl(t.Context(), strings.Fields(args)...)
		if got.code != 0 || !strings.Contains(got.stdout, "Usage:\n") || got.stderr != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestRefusals: what belongs to other parts of Liqo says so, whatever flags it
// gets.
func TestRefusals(t *testing.T) {
	for _, args := range []string{
		"move volume", "generate nonce", "delete tenant x", "delete resourceslice x",
	} {
		got := liqoctl(t.Context(), strings.Fields(args)...)
		if got.code != 1 || !strings.Contains(got.stderr, " ERRO   liqoctl ") || !strings.Contains(got.stderr, "'liqoctl ") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestConfirmation(t *testing.T) {
	a := newApp("liqoctl", strings.NewReader("n\n"), &strings.Builder{}, &strings.Builder{})
	if err := a.confirm(t.Context(), "disconnect", nil); err == nil || err.Error() != "action aborted" {
		t.Errorf("no: %v", err)
	}
	a.skipConfirm = true
	if err := a.confirm(t.Context(), "disconnect", nil); err != nil {
		t.Errorf("--skip-confirm: %v", err)
	}
}

// TestKubectlPlugin: under the names that kubectl looks for, the program speaks of
// itself as the user calls it.
func TestKubectlPlugin(t *testing.T) {
	got := liqoctlAs(t.Context(), "/usr/local/bin/kubectl-liqo", "", "network", "connect", "--help")
	if !strings.Contains(got.stdout, "kubectl liqo network connect") || strings.Contains(got.stdout, "liqoctl ") {
		t.Errorf("help:\n%s", got.stdout)
	}
	got = liqoctlAs(t.Context(), "kubectl-liqo.exe", "", "nonsense")
	got.want(t, "a mistake", "", " ERRO   unknown command \"nonsense\"; see 'kubectl liqo --help'\n")
	got = liqoctlAs(t.Context(), "kubectl_complete-liqo", "", "network", "con")
	if !strings.HasPrefix(got.stdout, "connect\t") || got.code != 0 {
		t.Errorf("completion: %+v", got)
	}
}

// TestOurName: under the name that is nobody else's, too.
func TestOurName(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"network", "connect", "--help"}, {"completion", "--help"}, {"completion", "bash"}} {
		got := liqoctlAs(t.Context(), "/opt/sluice/bin/sluicectl", "", args...)
		if got.code != 0 || !strings.Contains(got.stdout, "sluicectl") || strings.Contains(got.stdout, "liqoctl") {
			t.Errorf("%q: exit code %d\n%s", args, got.code, got.stdout)
		}
	}
	got := liqoctlAs(t.Context(), "sluicectl", "", "network", "conect")
	got.want(t, "a mistake", "", " ERRO   unknown command \"conect\", did you mean connect?; see 'sluicectl network --help'\n")
	// What the library behind it advises is advised under the same name.
	var said strings.Builder
	a := newApp("sluicectl", strings.NewReader(""), &strings.Builder{}, &said)
	a.console.Warn("run 'liqoctl network connect' again")
	if want := "run 'sluicectl network connect' again"; !strings.Contains(said.String(), want) {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}

// TestKubectl runs the plug-in by a real kubectl.
func TestKubectl(t *testing.T) {
	kubectl := kubectl(t)
	dir := t.TempDir()
	for _, name := range []string{"kubectl-liqo", "kubectl_complete-liqo"} {
		if err := os.Symlink(testProgram(t), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ name, want string }{
		{"liqo version --client", "Client version: " + clientVersion() + "\n"},
		{"__complete liqo network con", "connect\tConnect two clusters"},
	} {
		cmd := exec.Command(kubectl, strings.Fields(tt.name)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), asProgram+"=1", "HOME="+dir)
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), tt.want) {
			t.Errorf("kubectl %s: %v, %q, want %q", tt.name, err, out, tt.want)
		}
	}
}

// TestCompletionWithoutShell: it is for the login shell, or an error says what to name.
func TestCompletionWithoutShell(t *testing.T) {
	for _, tt := range []struct{ login, shell string }{
		{"/bin/bash", "bash"}, {"/usr/bin/zsh", "zsh"}, {"/opt/homebrew/bin/fish", "fish"}, {"/bin/tcsh", ""}, {"", ""},
	} {
		t.Setenv("SHELL", tt.login)
		got := liqoctl(t.Context(), "completion")
		if tt.shell == "" {
			got.want(t, tt.login, "", " ERRO   no shell given: name one of bash, zsh, fish, powershell; the variable SHELL, \""+tt.login+"\", is none of them\n")
			continue
		}
		got.want(t, tt.login, liqoctl(t.Context(), "completion", tt.shell).stdout, "")
		if head := got.stdout[:min(len(got.stdout), 200)]; !strings.Contains(head, "# "+tt.shell+" completion") {
			t.Errorf("%s: the head of the script does not say for which shell it is:\n%s", tt.login, head)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := liqoctl(t.Context(), "completion", shell)
		if got.code != 0 || !strings.Contains(got.stdout, "liqoctl") || got.stderr != "" {
			t.Errorf("%s: exit code %d, %d bytes, stderr %q", shell, got.code, len(got.stdout), got.stderr)
		}
		interpreter, err := exec.LookPath(shell)
		if err != nil || shell == "powershell" {
			continue
		}
		check := exec.Command(interpreter, "-n")
		check.Stdin = strings.NewReader(got.stdout)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s does not understand its script: %v: %s", shell, err, out)
		}
	}
}
