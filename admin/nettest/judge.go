package nettest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/sluice-net/sluice/admin/probe"
)

// Outcome is the result of a check.
type Outcome struct {
	Check
	OK bool `json:"ok"`
	// Answered is the pod that answered, as cluster/pod, and Source the address by which it
	// saw the sender.
	Answered string `json:"answered,omitempty"`
	Source   string `json:"source,omitempty"`
	// Seconds is how long an attempt took on average, Tries the highest number of attempts.
	Seconds float64 `json:"seconds"`
	Tries   int     `json:"tries"`
	// Note is something worth knowing about a check that succeeded, Error is what is wrong.
	Note  string `json:"note,omitempty"`
	Error string `json:"error,omitempty"`
	// NoRoute says that the machine that runs the test has no route to the address, so that
	// the check says nothing about the clusters.
	NoRoute bool `json:"noRoute,omitempty"`
}

// Judge says what the results of a check's attempts mean.
func Judge(c Check, results []probe.Result) Outcome {
	o := Outcome{Check: c}
	if c.Missing != "" {
		o.Error = c.Missing
		return o
	}
	if want := max(c.Times, 1); len(results) != want {
		o.Error = fmt.Sprintf("only %d of %d results arrived: the command ended early", len(results), want)
		return o
	}
	failed := 0
	for _, r := range results {
		one := c.judge(r)
		o.Seconds += r.Seconds / float64(len(results))
		o.Tries = max(o.Tries, r.Tries)
		if one.Error != "" {
			failed++
		}
		if o.Answered == "" || o.Error == "" && one.Error != "" { // the first failure is the one to look into
			o.Answered, o.Source = one.Answered, one.Source
		}
		o.Error, o.Note = cmp.Or(o.Error, one.Error), cmp.Or(o.Note, one.Note)
		o.NoRoute = o.NoRoute || one.NoRoute
	}
	if o.OK = failed == 0; !o.OK && len(results) > 1 {
		o.Error = fmt.Sprintf("%d of %d times: %s", failed, len(results), o.Error)
	}
	return o
}

// judge judges one result.
func (c *Check) judge(r probe.Result) (o Outcome) {
	if r.Answer != nil {
		o.Answered, o.Source = r.Answer.Cluster+"/"+r.Answer.Pod, r.Answer.Source
	}
	switch {
	case r.Stalled:
		o.Error = r.Error + ": small packets get through but large ones do not; somewhere on the path the MTU is smaller than that of the gateways: see spec.mtu of the GatewayServer and the GatewayClient"
	case !r.OK && c.From.Cluster == "" && unrouted(r.Error):
		o.NoRoute = true
		o.Error = r.Error + ": this machine has no route to the address; run the test on a machine that has one"
	case !r.OK && c.Kind == PodToPodLarge:
		o.Error = r.Error + " to large packets; if small ones get through, see spec.mtu of the GatewayServer and the GatewayClient"
	case !r.OK:
		o.Error = r.Error
	case c.To.Cluster == "": // any answer will do
	case r.Answer == nil:
		o.Error = fmt.Sprintf("something other than a pod of this test answers (HTTP status %d): the address does not lead to cluster %s", r.Status, c.To.Cluster)
	case r.Answer.Cluster != c.To.Cluster || c.To.Pod != "" && r.Answer.Pod != c.To.Pod:
		o.Error = fmt.Sprintf("pod %s of cluster %s answers: the address does not lead to %s", r.Answer.Pod, r.Answer.Cluster, c.To.Name)
	default:
		o.Error, o.Note = c.judgeSource(r.Answer.Source)
	}
	if o.Error == "" && r.Tries > 1 && o.Note == "" {
		o.Note = fmt.Sprintf("only attempt %d succeeded", r.Tries)
	}
	return o
}

// unrouted tells whether an error of a prober means that packets could not even be sent.
func unrouted(text string) bool {
	return text == syscall.ENETUNREACH.Error() || text == syscall.EHOSTUNREACH.Error()
}

// judgeSource judges the address by which the receiver saw the sender.
func (c *Check) judgeSource(text string) (problem, note string) {
	if len(c.Sources) == 0 {
		return "", ""
	}
	seen, err := netip.ParseAddr(text)
	seen = seen.Unmap().WithZone("")
	switch {
	case err != nil:
		return fmt.Sprintf("the sender is seen as %q, which is not an address", text), ""
	case slices.Contains(c.Sources, seen):
		return "", ""
	case slices.Contains(c.Odd, seen):
		return "", fmt.Sprintf("the sender is seen as %s, which stands for nodes of cluster %s: kube-proxy there hides pod addresses from Services", seen, c.From.Cluster)
	case seen == c.unknown:
		return fmt.Sprintf("the sender is seen as %s, which stands for everything in cluster %s that is not a pod, instead of %s: a node there masquerades pod addresses before the gateway sees them",
			seen, c.From.Cluster, c.Sources[0]), ""
	case seen == c.unmapped:
		return fmt.Sprintf("the sender is seen as %s, its address in its own cluster, instead of %s: the gateway of cluster %s does not remap it", seen, c.Sources[0], c.To.Cluster), ""
	}
	return fmt.Sprintf("the sender is seen as %s instead of %s: something on the path translates (masquerades) the source address", seen, c.Sources[0]), ""
}
