package doctor

import (
	"fmt"
	"time"
)

// Status is the outcome of a check.
type Status string

// The outcomes, from good to bad.
const (
	// OK: as it should be.
	OK Status = "ok"
	// Skipped: not judged; the message says why.
	Skipped Status = "skipped"
	// Warning: it works, but not as it should, or not for long.
	Warning Status = "warning"
	// Failed: this is in the way.
	Failed Status = "failed"
)

// severity orders outcomes.
var severity = map[Status]int{OK: 0, Skipped: 1, Warning: 2, Failed: 3}

// Worse returns the worse of two outcomes. The zero Status is better than all.
func Worse(a, b Status) Status {
	if a == "" || b != "" && severity[b] > severity[a] {
		return b
	}
	return a
}

// Finding is what one check found, in one cluster or between both. Its JSON form
// is what scripts read: fields are added, not renamed.
type Finding struct {
	// Check is the name of the check: "keys".
	Check string `json:"check"`
	// Cluster is "local" or "remote"; empty: it is about both, or there is only one.
	Cluster string `json:"cluster,omitempty"`
	// Peer is the ID of the remote cluster of the peering that it is about, as seen
	// from the local cluster; empty: it is about a cluster as a whole.
	Peer   string `json:"peer,omitempty"`
	Status Status `json:"status"`
	// Object is what it is about: "GatewayClient liqo-tenant-milan/milan".
	Object string `json:"object,omitempty"`
	// Message says what was found, in one sentence.
	Message string `json:"message"`
	// Cause says what leads to that, or what follows from it.
	Cause string `json:"cause,omitempty"`
	// Fix says what to do.
	Fix string `json:"fix,omitempty"`

	// blind says, of what is skipped, that too little could be read to judge what
	// needs it.
	blind bool
}

// Examined is a cluster that was looked at.
type Examined struct {
	// Name is "local", "remote", or empty for the only one.
	Name string `json:"name,omitempty"`
	// ClusterID is empty where it is not known.
	ClusterID string `json:"clusterID,omitempty"`
	APIServer string `json:"apiServer,omitempty"`
	// Origin says where the credentials come from.
	Origin string `json:"origin,omitempty"`
}

// Summary counts findings by outcome.
type Summary struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Failed   int `json:"failed"`
	Skipped  int `json:"skipped"`
}

// Report is everything that was found.
type Report struct {
	// Version is that of the program that looked.
	Version  string     `json:"version"`
	Time     time.Time  `json:"time"`
	Clusters []Examined `json:"clusters"`
	Findings []Finding  `json:"findings"`
	Summary  Summary    `json:"summary"`
}

// Healthy tells whether nothing failed.
func (r *Report) Healthy() bool { return r.Summary.Failed == 0 }

// sum counts the findings.
func (r *Report) sum() {
	r.Summary = Summary{}
	for _, f := range r.Findings {
		switch f.Status {
		case OK:
			r.Summary.OK++
		case Skipped:
			r.Summary.Skipped++
		case Warning:
			r.Summary.Warnings++
		case Failed:
			r.Summary.Failed++
		}
	}
}

// The checks write their findings so: fail("...").on(object).because("...").fix("...").
// The name of the check, the cluster and the peer are filled in for them.

func found(s Status, format string, args []any) Finding {
	return Finding{Status: s, Message: fmt.Sprintf(format, args...)}
}

func pass(format string, args ...any) Finding { return found(OK, format, args) }
func warn(format string, args ...any) Finding { return found(Warning, format, args) }
func fail(format string, args ...any) Finding { return found(Failed, format, args) }
func skip(format string, args ...any) Finding { return found(Skipped, format, args) }

// unseen skips a check, and all that need it: why is what could not be read. What
// nobody could see may be there.
func unseen(why string) Finding {
	f := skip("%s", why)
	f.blind = true
	return f
}

// on says what the finding is about.
func (f Finding) on(object string) Finding {
	f.Object = object
	return f
}

// in says in which cluster it is, where the check looks at both.
func (f Finding) in(c *cluster) Finding {
	f.Cluster = c.name
	return f
}

// because says what leads to it, or what follows.
func (f Finding) because(format string, args ...any) Finding {
	f.Cause = fmt.Sprintf(format, args...)
	return f
}

// fix says what to do.
func (f Finding) fix(format string, args ...any) Finding {
	f.Fix = fmt.Sprintf(format, args...)
	return f
}
