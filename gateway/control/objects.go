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
