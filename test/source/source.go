// Package source finds the files of this module and what is built from them, for
// tests and test stands. It works for binaries that were built with -trimpath too,
// which do not know where their source lies.
package source

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Root is the folder of the module: the nearest one above the working directory
// that has a go.mod. A test runs in the folder of its package. It panics outside of
// a module.
func Root() string { return root() }

var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no folder above the working directory has a go.mod")
		}
		dir = filepath.Dir(dir)
	}
	panic(fmt.Sprintf("find the folder of the module: %v", err))
})

// Path is a file or folder of the module, for example Path("deploy", "crds").
func Path(elements ...string) string {
	return filepath.Join(append([]string{Root()}, elements...)...)
}

// DependOn has `go test` keep the result of the test that runs only until a source of a package changes,
// or of one that it imports. A test calls it that builds a program: what other programs read go test does
// not see.
func DependOn(packages ...string) error {
	list := exec.Command("go", append([]string{"list", "-deps", "-f",
		`{{if not .Standard}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .SFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}`,
	}, packages...)...)
	list.Dir = Root()
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list what %s is built from: %w", strings.Join(packages, " "), err)
	}
	for _, file := range append(strings.Fields(string(out)), Path("go.mod"), Path("go.sum")) {
		if strings.HasPrefix(file, Root()+string(filepath.Separator)) {
			if _, err := os.Stat(file); err != nil { // which go test remembers
				return err
			}
		}
	}
	return nil
}

// Kubernetes returns the folder of the programs that test/kubetools/build.sh builds.
// It fails while they are not built.
func Kubernetes() (string, error) {
	dir, err := built("test", "kubetools", "build.sh")
	if err != nil {
		return "", fmt.Errorf("kube-apiserver, etcd and the rest of Kubernetes are not built (%w): run `make kube` once; it takes some minutes", err)
	}
	return dir, nil
}

// requirements, in the environment, lists what a machine must have, with commas in
// between. What tests need and it lacks is a failure then, instead of a skipped test.
// "kube" is what `make kube` builds, "root" what root has after .ci/prerequisites and
// test/uml/build.sh: rights, programs, a kernel.
const requirements = "SLUICE_REQUIRE"

func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv(requirements), ","), what)
}

// T is what Lacks and NeedRoot use of a testing.TB.
type T interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Lacks ends a test, for this machine lacks what it needs: it is skipped, and fails
// where the machine must have what root has.
func Lacks(t T, format string, args ...any) {
	t.Helper()
	if required("root") {
		t.Fatalf(requirements+" lists root, but the machine lacks what this test needs: "+format, args...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}

// NeedRoot ends a test as Lacks does, unless root runs it and has the programs.
func NeedRoot(t T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Lacks(t, "it needs root")
	}
	NeedPrograms(t, programs...)
}

// NeedPrograms ends a test as Lacks does, unless the machine has the programs.
func NeedPrograms(t T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			Lacks(t, "it needs %s, of the packages that .ci/prerequisites lists", program)
		}
	}
}

// NeedKubernetes skips a test that runs control planes where Kubernetes is not built,
// and with -short. Where the machine must have it, the test fails.
func NeedKubernetes(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("SKIPPED: it needs a control plane, which -short leaves out")
	}
	KubernetesFor(tb)
}

// ControlPlanes is the variable of the environment in which a test finds the socket of
// those who lend control planes: test/controlplanes.
const ControlPlanes = "SLUICE_CONTROLPLANES"

// NeedControlPlanes does what NeedKubernetes does, unless somebody lends control planes.
// Then a test looks for none of Kubernetes' programs.
func NeedControlPlanes(tb testing.TB) {
	tb.Helper()
	if testing.Short() || os.Getenv(ControlPlanes) == "" {
		NeedKubernetes(tb)
	}
	// go test remembers what is looked at here: other control planes may give other results.
	for _, of := range []string{Path("test", "kubetools"), Path("test", "controlplanetest", "plane")} {
		if _, err := os.ReadDir(of); err != nil {
			tb.Fatal(err)
		}
	}
}

// KubernetesFor returns what Kubernetes does. Where that is not built, it skips the
// test, which fails where the machine must have it.
func KubernetesFor(t T) (dir string) {
	t.Helper()
	dir, err := Kubernetes()
	switch {
	case err == nil:
	case required("kube"):
		t.Fatalf("%v", err)
	default:
		t.Skipf("SKIPPED: %v", err)
	}
	return dir
}

// Linux returns the user-mode kernel that test/uml/build.sh builds. It fails while it
// is not built.
func Linux() (string, error) {
	kernel, err := built("test", "uml", "build.sh")
	if err != nil {
		return "", fmt.Errorf("the user-mode kernel is not built (%w): run test/uml/build.sh once; it takes some minutes", err)
	}
	return kernel, nil
}

// Axe returns the script of axe-core, which test/browser/axe.sh fetches. It fails while that
// is not there.
func Axe() (string, error) {
	script, err := built("test", "browser", "axe.sh")
	if err != nil {
		return "", fmt.Errorf("axe-core is not there (%w): run test/browser/axe.sh once", err)
	}
	return script, nil
}

// Prometheus returns the program that test/kubernetes/prometheus.sh fetches. It fails while
// that is not there.
func Prometheus() (string, error) {
	program, err := built("test", "kubernetes", "prometheus.sh")
	if err != nil {
		return "", fmt.Errorf("Prometheus is not there (%w): run test/kubernetes/prometheus.sh once", err)
	}
	return program, nil
}

// Liqo returns the folder of what test/liqo/build.sh builds. It fails while that is not there.
func Liqo() (dir string, err error) {
	dir, err = built("test", "liqo", "build.sh")
	if err != nil {
		return "", fmt.Errorf("Liqo is not built (%w): run test/liqo/build.sh once; it takes some minutes", err)
	}
	return dir, nil
}

// built asks a script for the path of what it builds or fetches.
func built(script ...string) (string, error) {
	out, err := exec.Command("bash", Path(script...), "--path").Output()
	return strings.TrimSpace(string(out)), err
}
