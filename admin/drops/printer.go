package drops

import (
	"encoding/json"
	"fmt"
	"io"
)

// Printer prints drops as they come and explains each reason once, below its first drop.
type Printer struct {
	Out io.Writer
	// JSON: a Report in each line.
	JSON bool

	explained map[string]bool
}

// Report is a Drop with where it was dropped and what that means. Its JSON form is what
// scripts read: fields are added, not renamed.
type Report struct {
	// Cluster is "local" or "remote", Peer the ID of the other cluster; both are empty where
	// a gateway reports its own drops.
	Cluster string `json:"cluster,omitempty"`
	Peer    string `json:"peer,omitempty"`
	Drop
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`
	See   string `json:"see,omitempty"`
}

// NewReport explains a drop.
func NewReport(cluster, peer string, d Drop) Report {
	r := Report{Cluster: cluster, Peer: peer, Drop: d}
	if reason, known := Explain(d.Reason); known {
		r.Cause, r.Fix, r.See = reason.Cause, reason.Fix, Page
	}
	return r
}

// Print prints r. The error is that of writing.
func (p *Printer) Print(r Report) error {
	if p.JSON {
		text, err := json.Marshal(r)
		if err == nil {
			_, err = p.Out.Write(append(text, '\n'))
		}
		return err
	}
	where := ""
	if r.Peer != "" {
		where = r.Peer + "  "
	}
	if r.Cluster != "" {
		where = "(" + r.Cluster + ") " + where
	}
	_, err := fmt.Fprintf(p.Out, "%s  %s%s\n", r.Time.Local().Format("2006-01-02 15:04:05.000"), where, r.Drop)
	if err != nil || p.explained[r.Reason] || r.Cause == "" {
		return err
	}
	if p.explained == nil {
		p.explained = make(map[string]bool)
	}
	p.explained[r.Reason] = true
	_, err = fmt.Fprintf(p.Out, "    %s\n    What to do: %s.\n    See %s.\n", r.Cause, r.Fix, r.See)
	return err
}
