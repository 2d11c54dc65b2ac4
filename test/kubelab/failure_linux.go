package kubelab

import "fmt"

// explainFailure says what the clusters look like when the test has failed.
func (l *Lab) explainFailure() {
	if !l.t.Failed() {
		return
	}
	for _, c := range l.Clusters {
		if p := c.programs["kube-apiserver"]; p == nil || !p.Running() {
			l.t.Logf("--- cluster %s: its kube-apiserver does not run: %s", c.Name, lastLines(c.file("kube-apiserver.log"), 5))
			continue
		}
		for _, args := range [][]string{
			{"get", "nodes", "-o", "wide"},
			{"get", "pods", "-A", "-o", "wide"},
			{"get", "events", "-A", "--field-selector=type=Warning,reason!=CgroupV1,reason!=MissingClusterDNS", "--sort-by=.lastTimestamp"},
		} {
			out, err := c.Kubectl(append(args, "--request-timeout=5s")...)
			if err != nil {
				out = fmt.Sprint(err)
			}
			l.t.Logf("--- cluster %s: kubectl %s %s\n%s", c.Name, args[0], args[1], out)
		}
	}
}
