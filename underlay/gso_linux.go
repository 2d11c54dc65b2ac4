package underlay

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// smallestMTU is below what any path has (IPv4 hosts must take 576 bytes, RFC 791
	// section 3.2; Linux does not believe in less than 552). A kernel that refuses
	// runs of segments this small does not do so because of the MTU.
	smallestMTU = 512

	// limitTime is how long runs of a refused size are not tried: the time after which a
	// changed route or a grown path MTU is noticed.
	limitTime = 10 * time.Second
)

// gso decides which runs are worth trying. on may be set from anywhere; the rest
// belongs to whoever holds the writer's mutex.
//
// A refusal says little by itself. EINVAL is a segment that exceeds the MTU
// (EMSGSIZE since Linux 6.13), or a wrong address, or a kernel that cannot do it; EIO is a
// device that cannot finish checksums or a route through IPsec; ENOBUFS is a
// shortage that the smaller messages of a replay may survive. So a refused run is replayed
// as single datagrams first, and only when the kernel takes those was it the run that it minded.
type gso struct {
	supported bool // immutable after Listen
	on        atomic.Bool

	limit      int // runs with segments of this size or more are not tried; 0 = no limit
	limitSince time.Time

	doubt     syscall.Errno // why the run now being replayed was refused; 0 = none is
	doubtSize int           // its segment size
}

func (g *gso) set(on bool) { g.on.Store(on && g.supported) }

// maxSegment is the largest segment a run may have now, 0 when there are to be no runs.
func (g *gso) maxSegment(now func() time.Time) int {
	switch {
	case !g.on.Load():
		return 0
	case g.limit == 0:
		return maxRunLen
	case now().Sub(g.limitSince) >= limitTime:
		g.limit = 0
		return maxRunLen
	default:
		return g.limit - 1
	}
}

// refused takes note that a run was refused and reports whether its datagrams
// should be replayed one by one. If not, the error is about their destination.
func (g *gso) refused(errno syscall.Errno, segment int) bool {
	switch errno {
	case unix.EIO, unix.EINVAL, unix.EMSGSIZE, unix.EOPNOTSUPP, unix.ENOBUFS, unix.ENOMEM:
		g.doubt, g.doubtSize = errno, segment
		return true
	}
	return false
}

// replayed settles the doubt: ok tells whether the first datagram of the run was
// taken by itself.
func (g *gso) replayed(ok bool, now func() time.Time) {
	errno := g.doubt
	g.doubt = 0
	switch {
	case errno == 0 || !ok || errno == unix.ENOBUFS || errno == unix.ENOMEM:
	case errno == unix.EIO, errno == unix.EOPNOTSUPP, errno == unix.EINVAL && g.doubtSize < smallestMTU:
		g.on.Store(false)
	default:
		g.limit, g.limitSince = g.doubtSize, now()
	}
}
