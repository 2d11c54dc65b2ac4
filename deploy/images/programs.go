package images

// Repository is where the source lies.
const Repository = "https://github.com/sluice-net/sluice"

// License of the project, in SPDX's words.
const License = "Apache-2.0"

// DefaultRegistry is what the images' names begin with: the chart's value of this name. It is
// no registry, so that nobody fetches by accident what others have published: images of this
// name are brought to the nodes.
const DefaultRegistry = "sluice.local"

// binDir is where a program lies in its image: in the PATH, as `kubectl exec` and the
// chart call programs by name.
const binDir = "usr/local/bin"

// Users of images.
const (
	// Nobody is who a program without privileges runs as: the user of the chart's pods.
	Nobody = "65532:65532"
	// Root is for programs to which their pod gives capabilities: these are in force for
	// root only.
	Root = "0:0"
)

// Program is what an image is built from.
type Program struct {
	Name        string // of the image and of the program in it
	Package     string // Go package, as the go command takes it in the module's root
	User        string // uid:gid
	Description string // one line, for those who look at the image
}

// Programs are those that run in clusters.
func Programs() []Program {
	return []Program{
		{"controller", "./cmd/controller", Nobody, "Sluice's controllers: addresses, gateways, connections between clusters"},
		{"fabric", "./cmd/fabric", Root, "Sluice's node agent: the way between a node's pods and the gateways"},
		{"gateway", "./cmd/gateway", Nobody, "Sluice's gateway: pods of two clusters reach each other through it"},
		{"virtualkubelet", "./cmd/virtualkubelet", Nobody, "Sluice's virtual kubelet: pods of one cluster run in another"},
		{"prober", "./cmd/prober", Nobody, "The pods of liqoctl test network"},
		{"clusterdns", "./cmd/clusterdns", Nobody, "Sluice's DNS server for the Services of other clusters"},
	}
}
