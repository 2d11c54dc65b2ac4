package hostnet

import "errors"

var (
	// ErrNotPermitted is what Open and Apply return without the capability NET_ADMIN.
	ErrNotPermitted = errors.New("not permitted to change this network")
	// ErrInUse is what Open returns while another agent runs in the same network
	// namespace.
	ErrInUse = errors.New("another node agent runs in this network namespace")
	// ErrInTheWay is what Apply returns where somebody else has the name, the VNI
	// or the UDP port of a link: a link of another kind would be no better off.
	ErrInTheWay = errors.New("somebody else has it")
	// ErrNoRoute is what Path returns where the kernel knows no way.
	ErrNoRoute = errors.New("no route")
)

// inTheWay is an error that is ErrInTheWay.
type inTheWay struct{ error }

func (e inTheWay) Is(target error) bool { return target == ErrInTheWay }

func (e inTheWay) Unwrap() error { return e.error }

// Lock is the abstract Unix socket, of type datagram, that Open holds. Such names
// belong to a network namespace and end with their owner, whatever way it ends.
const Lock = "@sluice-fabric"

// Event says what may have changed. It does not say what: to look is cheap, and
// right also where notifications got lost.
type Event struct {
	// Ours: something with our mark, or in its way. Read and Diff tell.
	Ours bool
	// Paths: links, addresses, routes or rules of others. Path may answer otherwise.
	Paths bool
}

func (e *Event) add(other Event) {
	e.Ours = e.Ours || other.Ours
	e.Paths = e.Paths || other.Paths
}
