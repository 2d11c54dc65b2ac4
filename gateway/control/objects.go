package control

import "github.com/sluice-net/sluice/objects/manifests"

// Objects is one state of everything that the data plane is built from.
type Objects struct {
	manifests.Objects
	// NodePort is the UDP port of the node tunnels, which no gateway may ask
	// for; zero when it is not known. It comes from the command line.
	NodePort uint16
	// Cluster is set where the objects come from an API server; nil: from files.
	Cluster *Cluster
}

// Load reads the files of dir and builds what they ask for. When there are errors
// of form, the meaning is not judged: its errors would only follow from them. Of
// a refused state only the warnings are there. Errors are of type
// manifests.Problems.
func Load(dir string) (Desired, error) { return load(dir, 0) }

// load is Load for a gateway whose node tunnels use nodePort.
func load(dir string, nodePort uint16) (Desired, error) {
	files, err := manifests.ReadFiles(dir)
	if err != nil {
		return Desired{}, err
	}
	objects, warnings, err := files.Decode(reader)
	if err != nil {
		return Desired{Warnings: warnings}, err
	}
	d, err := Build(Objects{Objects: objects, NodePort: nodePort})
	d.Warnings = append(warnings, d.Warnings...)
	return d, err
}
