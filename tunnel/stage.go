package tunnel

// largeBatch is how many packets make it worth to wake another goroutine for them: more than
// the 48 of one TCP super-segment, so that there is a next batch already.
const largeBatch = 64

// stage is the second half of a loop. It works on a batch where the loop does, or, where there
// are processors for it, on a large batch beside the loop, which is then at its next one. It
// works on one batch at a time, in order.
type stage[T any] struct {
	work func(T)
	next chan T        // received by the other goroutine; closed by close. Nil: there is none
	idle chan struct{} // has its one slot taken while the other goroutine has nothing to do
	end  chan struct{} // closed when the other goroutine has ended
}

// newStage returns a stage; apart says that there are processors for it. Who has it closes it.
func newStage[T any](apart bool, work func(T)) *stage[T] {
	s := &stage[T]{work: work}
	if !apart {
		return s
	}
	s.next, s.idle, s.end = make(chan T), make(chan struct{}, 1), make(chan struct{})
	s.idle <- struct{}{}
	go func() {
		defer close(s.end)
		for batch := range s.next {
			s.work(batch)
			s.idle <- struct{}{}
		}
	}()
	return s
}

// take has the stage work on a batch. When it returns, the batch is done, or, if it reports
// true, every batch before it is.
func (s *stage[T]) take(batch T, large bool) (underWay bool) {
	if s.next == nil {
		s.work(batch)
		return false
	}
	<-s.idle
	if large {
		s.next <- batch
		return true
	}
	s.work(batch)
	s.idle <- struct{}{}
	return false
}

// close waits until the stage is done, and ends it.
func (s *stage[T]) close() {
	if s.next != nil {
		close(s.next)
		<-s.end
	}
}
