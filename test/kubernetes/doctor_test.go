package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// examined is a connection that is broken in many ways, one by one.
type examined struct {
	*world
	// here and there are the tenant namespaces of the two clusters.
	here, there string
	// admin is an administrator of a, who has the kubeconfig of b, too.
	admin *shell
	// clients and servers are pods for traffic, one on each node of a and of b.
	clients, servers []*kubelab.Pod
	verdicts         verdicts
}

// symptom is what the doctor must say of a fault.
type symptom struct {
	check   string
	cluster string // "local", "remote", or empty: it is about both
	status  doctor.Status
	// says are parts of what was found, of the cause and of the fix.
	message, cause, fix string
}

// fault is something that goes wrong on real clusters.
type fault struct {
	name string
	// long says that it takes the better part of a minute, or more.
	long   bool
	inject func(t *testing.T, x *examined)
	want   symptom
	// beside says that no peering is the worse for it: the status, which is about
	// peerings, has nothing to say.
	beside bool
	// says is the reason that the status must give; empty: any.
	says string
	// seenBy is the cluster that notices the fault by itself as well, at the other end; nil: not looked at.
	seenBy func(*world) *kubelab.Cluster
	// heal does what the fix says; advice is its text.
	heal func(t *testing.T, x *examined, advice string)
}

// testDoctor connects the clusters, has the doctor find nothing, and breaks the
// connection in many ways: each time the doctor names the cause, one only, and what
// it advises mends it.
func testDoctor(t *testing.T, w *world) {
	x := newExamined(t, w)
	t.Run("healthy", func(t *testing.T) {
		x.green(t)
		// A busy machine loses pings, which the doctor notices.
		lab.Eventually(t, patience, "the doctor says in words that all is well", func() error {
			stdout, _, err := w.tryLiqoctl(t.Context(), w.both("network", "doctor")...)
			if err == nil && !strings.Contains(stdout, "All is well: ") {
				err = errors.New(stdout)
			}
			return err
		})
	})
	t.Run("one side", func(t *testing.T) {
		for _, c := range w.Clusters {
			r, code := x.examine(t, "--kubeconfig", c.Kubeconfig)
			if failed := failures(r); code != 0 || len(failed) > 0 {
				t.Errorf("%s alone: exit code %d, %+v", c.Name, code, failed)
			}
		}
	})
	for _, f := range slices.Concat(faultsOfObjects(), faultsOfTheNetwork(), faultsOfClusters()) {
		mended := len(x.verdicts.rows)
		if !t.Run(f.name, func(t *testing.T) {
			if f.long && !*long {
				t.Skip("SKIPPED: this fault takes long to show or to heal: -kubernetes.long")
			}
			x.suffer(t, f)
		}) && len(x.verdicts.rows) == mended {
			return // it is broken, and the next fault would not be the only one
		}
	}
	t.Run("a kubeconfig of no use", x.withoutAccess)
	t.Run("a user without rights", func(t *testing.T) {
		nobody, err := w.b.KubeconfigFor("nobody", "nobodies", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := x.examine(t, "--kubeconfig", w.a.Kubeconfig, "--remote-kubeconfig", nobody)
		failed := failures(r)
		if len(failed) != 1 || failed[0].Check != "permissions" || failed[0].Cluster != "remote" || !slices.ContainsFunc(r.Findings, symptomless{"permissions", "local"}.is) {
			t.Errorf("%s", unwell(r))
		}
	})
	t.Run("the same cluster twice", func(t *testing.T) {
		r, code := x.examine(t, "--kubeconfig", w.a.Kubeconfig, "--remote-kubeconfig", w.a.Kubeconfig)
		if failed := failures(r); code != 1 || len(failed) != 1 || failed[0].Check != "identity" {
			t.Errorf("exit code %d:\n%s", code, unwell(r))
		}
	})
}

func newExamined(t *testing.T, w *world) *examined {
	w.connect(t)
	x := &examined{world: w, here: "liqo-tenant-" + w.b.Name, there: "liqo-tenant-" + w.a.Name, admin: w.newShell(w.a, t.TempDir())}
	x.admin.set("REMOTE_KUBECONFIG", w.b.Kubeconfig)
	x.clients, x.servers = w.clients(t, w.a, 2), w.servers(t, w.b, 2)
	t.Cleanup(func() { x.verdicts.publish(t) })
	return x
}

// suffer has a fault happen, be found and be mended.
func (x *examined) suffer(t *testing.T, f fault) {
	var traffic []*pings
	for _, p := range x.pathsBetween(t, x.clients, x.servers) { // a repair may have changed the addresses
		traffic = append(traffic, startPings(t, p))
	}
	start := time.Now()
	f.inject(t, x)
	var found doctor.Finding
	lab.Eventually(t, patience, "the doctor names the cause", func() error {
		r, code := x.examine(t, x.both()...)
		at := slices.IndexFunc(r.Findings, f.want.is)
		failed := failures(r)
		switch wrong := f.want.status == doctor.Failed; {
		case at < 0:
			return fmt.Errorf("no finding is %+v, but:\n%s", f.want, unwell(r))
		case wrong && (len(failed) != 1 || code != 1):
			return fmt.Errorf("exit code %d, and not one failure, but:\n%s", code, unwell(r))
		case !wrong && (len(failed) != 0 || code != 0):
			return fmt.Errorf("exit code %d for what is a warning:\n%s", code, unwell(r))
		}
		found = r.Findings[at]
		return nil
	})
	if f.seenBy != nil {
		x.oneSided(t, f)
	}
	t.Logf("found after %v: %s %s (%s) %s\n\tfound: %s\n\tcause: %s\n\tfix:   %s", time.Since(start).Round(100*time.Millisecond),
		found.Status, found.Check, found.Cluster, found.Object, found.Message, found.Cause, found.Fix)
	row := verdict{fault: f.name, doctor: found}
	row.status, row.wrong = x.status(t, f.want.status == doctor.Failed && !f.beside, f.says)
	f.heal(t, x, found.Fix)
	for _, m := range traffic {
		row.silence = max(row.silence, m.longest(start))
		m.end()
	}
	x.green(t)
	x.verdicts.rows = append(x.verdicts.rows, row)
	if row.wrong != "" {
		t.Errorf("the status is wrong, %s: %s", row.wrong, row.status)
	}
}

// oneSided asks doctor and status of the other end alone, which must notice, too.
func (x *examined) oneSided(t *testing.T, f fault) {
	t.Helper()
	c := f.seenBy(x.world)
	// The session with the key before goes on until it is renewed, after 120 s (WireGuard's Rekey-After-Time).
	const renewal = 120 * time.Second
	lab.Eventually(t, renewal+patience, "doctor and status of "+c.Name+" alone notice", func() error {
		r, _ := x.examine(t, "--kubeconfig", c.Kubeconfig)
		if r.Summary.OK+r.Summary.Skipped == len(r.Findings) {
			return errors.New("all findings of the doctor are ok")
		}
		stdout, _, err := x.tryLiqoctl(t.Context(), "network", "status", "--kubeconfig", c.Kubeconfig)
		if err == nil && !strings.Contains(stdout, "(!)") {
			err = fmt.Errorf("the status says\n%s", stdout)
		}
		return err
	})
}

// is tells whether a finding is the one.
func (s symptom) is(f doctor.Finding) bool {
	return f.Check == s.check && f.Cluster == s.cluster && f.Status == s.status &&
		strings.Contains(f.Message, s.message) && strings.Contains(f.Cause, s.cause) && strings.Contains(f.Fix, s.fix)
}

// green waits until everything is well: no failure, no warning, nothing left out.
func (x *examined) green(t *testing.T) {
	t.Helper()
	start := time.Now()
	lab.Eventually(t, 2*patience, "the doctor finds nothing", func() error {
		r, code := x.examine(t, x.both()...)
		if code != 0 || r.Summary.OK != len(r.Findings) {
			return fmt.Errorf("exit code %d:\n%s", code, unwell(r))
		}
		return nil
	})
	t.Logf("all is well after %v", time.Since(start).Round(100*time.Millisecond))
}

// examine calls the doctor, as scripts do, and returns its exit code.
func (x *examined) examine(t *testing.T, args ...string) (r *doctor.Report, code int) {
	t.Helper()
	stdout, _, err := x.tryLiqoctl(t.Context(), append([]string{"network", "doctor", "-o", "json"}, args...)...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	r = new(doctor.Report)
	if err := json.Unmarshal([]byte(stdout), r); err != nil {
		t.Fatalf("the report: %v\n%s", err, stdout)
	}
	return r, code
}

// failures are the findings that say that something is in the way.
func failures(r *doctor.Report) (out []doctor.Finding) {
	for _, f := range r.Findings {
		if f.Status == doctor.Failed {
			out = append(out, f)
		}
	}
	return out
}

// unwell is the report without what is well.
func unwell(r *doctor.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Status != doctor.OK {
			fmt.Fprintf(&b, "%s %s (%s) %s: %s; cause: %s; fix: %s\n", f.Status, f.Check, f.Cluster, f.Object, f.Message, f.Cause, f.Fix)
		}
	}
	return b.String()
}

// withoutAccess has credentials of the remote cluster that are worth nothing.
func (x *examined) withoutAccess(t *testing.T) {
	old, err := x.b.KubeconfigFor("ann", "system:masters", time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	gone := x.elsewhere(t)
	for _, tt := range []struct {
		name, kubeconfig    string
		message, cause, fix string
	}{
		{"out of date", old, "does not accept the credentials of kubeconfig " + old, "its client certificate is valid until", "log in again"},
		{"of a cluster that is gone", gone, "cannot be reached", "connection refused", "check that the cluster runs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, code := x.examine(t, "--kubeconfig", x.a.Kubeconfig, "--remote-kubeconfig", tt.kubeconfig)
			want := symptom{"api-access", "remote", doctor.Failed, tt.message, tt.cause, tt.fix}
			if len(failures(r)) != 1 || code != 1 || !slices.ContainsFunc(r.Findings, want.is) {
				t.Fatalf("exit code %d, and not %+v:\n%s", code, want, unwell(r))
			}
			t.Logf("%+v", failures(r)[0])
			// What one side tells is judged all the same.
			here := symptomless{"gateway-pods", "local"}
			if !slices.ContainsFunc(r.Findings, here.is) {
				t.Errorf("the local cluster is not judged:\n%s", unwell(r))
			}
		})
	}
	fresh, err := x.b.KubeconfigFor("ann", "system:masters", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if r, code := x.examine(t, "--kubeconfig", x.a.Kubeconfig, "--remote-kubeconfig", fresh); code != 0 {
		t.Errorf("logged in again, exit code %d:\n%s", code, unwell(r))
	}
}

// symptomless is a check that is well.
type symptomless struct{ check, cluster string }

func (s symptomless) is(f doctor.Finding) bool {
	return f.Check == s.check && f.Cluster == s.cluster && f.Status == doctor.OK
}

// elsewhere is a kubeconfig of b with a port where nobody listens.
func (x *examined) elsewhere(t *testing.T) string {
	t.Helper()
	x.admin.ok(t, "cp $REMOTE_KUBECONFIG gone.kubeconfig")
	x.admin.ok(t, "kubectl --kubeconfig gone.kubeconfig config set-cluster $(kubectl --kubeconfig gone.kubeconfig config view -o jsonpath='{.clusters[0].name}') --server https://"+x.b.Public.String()+":6499")
	return x.admin.dir + "/gone.kubeconfig"
}

// patch changes an object by a merge patch.
func (x *examined) patch(t *testing.T, c *kubelab.Cluster, namespace, object, patch string) {
	t.Helper()
	x.kubectl(t, c, "-n", namespace, "patch", object, "--type=merge", "-p", patch)
}
