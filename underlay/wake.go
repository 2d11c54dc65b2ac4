package underlay

import (
	"net"
	"sync/atomic"
	"time"
)

// past is a read deadline that has always expired. Not the zero time, which
// means no deadline.
var past = time.Unix(1, 0)

// waker interrupts the read of a connection by its read deadline, so that no
// second file descriptor is needed. The zero value with conn set is ready.
//
// A wake is never lost and never left over, whatever the interleaving:
// raise sets the flag before the deadline, clear resets the deadline before the flag.
// If raise's flag comes before clear's, clear reports it. If it comes after, then
// raise's deadline also comes after clear's reset and stands. A deadline that stands
// without a flag (raise was slow, clear ran in between) ends one wait too
// early, clear reports false, and the reader waits again.
type waker struct {
	conn *net.UDPConn
	flag atomic.Bool
}

// raise makes a wait on conn's readability fail now, or the next one.
func (w *waker) raise() {
	if w.flag.Swap(true) {
		return // whoever set the flag also sets the deadline
	}
	_ = w.conn.SetReadDeadline(past) // fails only when closed: nobody waits then
}

// raised reports whether there is a wake to clear.
func (w *waker) raised() bool { return w.flag.Load() }

// clear ends the wake and reports whether there was one.
func (w *waker) clear() bool {
	_ = w.conn.SetReadDeadline(time.Time{})
	return w.flag.Swap(false)
}
