package bundle

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
)

// readmeFile tells what the other files are.
const readmeFile = "README.md"

const readmeHead = `# Support bundle

Made by %s on %s for a problem report. It is a folder of text files:

| file | what it is |
|---|---|
| manifest.json | which clusters, all files with their sizes, and what is missing and why |
| doctor.json | what 'liqoctl network doctor' found |
| CLUSTER/survey.json | installation, networks, peerings: what 'liqoctl info' and 'network status' go by |
| CLUSTER/objects/KIND.yaml | the objects of one kind; of Nodes and CRDs only what matters here |
| CLUSTER/reports/NAMESPACE/POD.json | what a gateway or a node agent said: 'gateway status', 'fabric status' |
| CLUSTER/logs/NAMESPACE/POD/CONTAINER.log | the end of a log; .previous.log is from before the last restart |
| CLUSTER/metrics/NAMESPACE/POD.txt | metrics, of pods that serve them to other hosts |

`

const readmeSecrets = `## What is left out

- Secrets, which are not read at all. Of other people's ConfigMaps only the names of their entries are here.
- Values of environment variables, of unknown annotations and of unknown arguments of programs.
- In all texts: whatever looks like a private key, a token or a password, and every value of an environment variable
  with a telling name. What looks like nothing of this stays.

It says "` + left + `" there. IP addresses, names of clusters, nodes and objects, and public keys are NOT left out: a
network problem cannot be understood without them. Look through the files before you give them to anybody who must
not know these.
`

// readme is the text for those who open the archive.
func readme(m manifest) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, readmeHead, m.By, m.Made.Format("2006-01-02 15:04:05 UTC"))
	b.WriteString("| CLUSTER | ID | API server | Kubernetes | installed |\n|---|---|---|---|---|\n")
	for _, c := range m.Clusters {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Folder, cmp.Or(c.ID, "unknown"), c.APIServer, cmp.Or(c.Kubernetes, "unknown"), cmp.Or(c.Version, "unknown"))
	}
	b.WriteString("\n")
	b.WriteString(readmeSecrets)
	b.WriteString("\n## What could not be read\n\n")
	if len(m.Missing) == 0 {
		b.WriteString("Nothing is missing.\n")
	}
	for _, gap := range m.Missing {
		where := ""
		if gap.Cluster != "" {
			where = "(" + gap.Cluster + ") "
		}
		fmt.Fprintf(&b, "- %s%s: %s\n", where, gap.What, strings.TrimSuffix(gap.Why, "."))
	}
	return b.Bytes()
}
