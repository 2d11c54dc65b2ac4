package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/admin/nettest"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// manyChecks is from how many on only those are shown that are worth a look.
const manyChecks = 40

func (t *networkTest) show(r *nettest.Report) error {
	if t.out.given() {
		return t.out.data(r)
	}
	if len(r.Outcomes) > 0 {
		t.console.Show(outcomePage(r, t.console.Verbose() > 0))
	}
	return nil
}

// outcomePage shows what came of the checks.
func outcomePage(r *nettest.Report, all bool) func(*console.Page) {
	return func(p *console.Page) {
		shown := r.Outcomes
		if !all && len(shown) > manyChecks {
			p.Table([]string{"CHECK", "FROM", "TO", "SUCCEEDED", "FAILED", "LATENCY"}, summary(r.Outcomes))
			shown = slices.DeleteFunc(slices.Clone(shown), func(o nettest.Outcome) bool { return o.OK && o.Note == "" })
			if len(shown) > 0 {
				p.Line("")
			}
		}
		if len(shown) > 0 {
			rows := make([][]string, len(shown))
			for i, o := range shown {
				rows[i] = outcomeRow(&o)
			}
			p.Table([]string{"CHECK", "FROM", "TO", "ADDRESS", "SEEN AS", "LATENCY", "RESULT"}, rows)
		}
		if hidden := len(r.Outcomes) - len(shown); hidden > 0 {
			p.Line(console.Faint(fmt.Sprintf("%s that succeeded are not listed; -v lists them.", count(hidden, "check"))))
		}
	}
}

// verdict is an error if checks failed, and says where to look for the cause.
func verdict(r *nettest.Report) error {
	failed, unrouted := r.Failed(), 0
	for _, o := range r.Outcomes {
		if o.NoRoute {
			unrouted++
		}
	}
	if failed == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of %s failed: ", failed, count(len(r.Outcomes), "check"))
	const cause = "'liqoctl network doctor' looks for the cause"
	if unrouted == 0 {
		return errors.New(text + cause)
	}
	text += fmt.Sprintf("this machine has no route to the addresses of %d, which says nothing about the clusters", unrouted)
	if unrouted < failed {
		text += "; for the rest, " + cause
	}
	return errors.New(text)
}

func outcomeRow(o *nettest.Outcome) []string {
	result := console.Good("ok")
	switch {
	case !o.OK:
		result = console.Bad("failed: ") + o.Error
	case o.Note != "":
		result = console.Caution("ok: ") + o.Note
	}
	return []string{string(o.Kind), o.From.Name, o.To.Name, target(o.URL), cmp.Or(o.Source, "-"), latency(o.Seconds), result}
}

// target is the part of a URL that tells something.
func target(text string) string {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return "-"
	}
	size := ""
	if n := u.Query().Get("bytes"); n != "" {
		size = ", " + n + " bytes"
	}
	if u.Scheme == "http" {
		return u.Host + size
	}
	return u.Host + " " + strings.ToUpper(u.Scheme) + size
}

func latency(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// summary counts the outcomes between each two clusters.
func summary(outcomes []nettest.Outcome) (rows [][]string) {
	type key struct {
		kind     nettest.Kind
		from, to string
	}
	type sum struct {
		ok, failed int
		seconds    []float64
	}
	var order []key
	sums := make(map[key]*sum)
	for _, o := range outcomes {
		k := key{o.Kind, cmp.Or(o.From.Cluster, o.From.Name), cmp.Or(o.To.Cluster, o.To.Name)}
		s := sums[k]
		if s == nil {
			s = &sum{}
			sums[k], order = s, append(order, k)
		}
		if o.OK {
			s.ok++
			s.seconds = append(s.seconds, o.Seconds)
		} else {
			s.failed++
		}
	}
	for _, k := range order {
		s := sums[k]
		median := 0.0
		if slices.Sort(s.seconds); len(s.seconds) > 0 {
			median = s.seconds[len(s.seconds)/2]
		}
		failed := fmt.Sprint(s.failed)
		if s.failed > 0 {
			failed = console.Bad(failed)
		}
		rows = append(rows, []string{string(k.kind), k.from, k.to, fmt.Sprint(s.ok), failed, latency(median)})
	}
	return rows
}

// inventoryPage shows what there is to test.
func inventoryPage(clusters []nettest.Inventory) func(*console.Page) {
	return func(p *console.Page) {
		for i, c := range clusters {
			if i > 0 {
				p.Line("")
			}
			p.Heading(fmt.Sprintf("Cluster %s (%s)", c.ID, c.Name))
			var rows [][]string
			for _, pod := range c.Probers {
				row := []string{pod.Name, pod.Node, pod.IP.String()}
				for _, other := range clusters {
					if other.ID != c.ID {
						row = append(row, cmp.Or(addressIn(&other, c.ID, pod), "-"))
					}
				}
				rows = append(rows, row)
			}
			header := []string{"POD", "NODE", "ADDRESS"}
			for _, other := range clusters {
				if other.ID != c.ID {
					header = append(header, "IN "+strings.ToUpper(other.ID))
				}
			}
			p.Table(header, rows)
		}
	}
}

// addressIn is where a cluster has a pod of another.
func addressIn(in *nettest.Inventory, of string, pod nettest.Prober) string {
	if a := in.Address(of, pod.IP); a.IsValid() {
		return a.String()
	}
	return ""
}
