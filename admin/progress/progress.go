package progress

import "sync"

// Kind says what an Event tells.
type Kind int

const (
	// Waiting: something is under way that takes time. It ends with the next Event
	// of the same Cluster that is not Waiting.
	Waiting Kind = iota
	// Done: a step succeeded.
	Done
	// Warning: something the user should know; the work goes on.
	Warning
	// Failed: a step failed; the error that the work returns says more.
	Failed
	// Ended: what was waited for is over, and there is nothing to tell. It has no Text.
	Ended
)

// Event is one thing that work has to tell.
type Event struct {
	Kind Kind
	// Cluster is the name of the cluster that it is about: "local", "remote", or
	// empty where there is only one.
	Cluster string
	// Text is one line without a full stop: "Gateway server correctly set up".
	Text string
}

// Func gets the Events, in order and one at a time. Nil is nobody.
type Func func(Event)

// Serial is f for several goroutines, which tell one after the other.
func (f Func) Serial() Func {
	if f == nil {
		return nil
	}
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		f(e)
	}
}

// Waiting tells that something is under way.
func (f Func) Waiting(cluster, text string) { f.tell(Waiting, cluster, text) }

// Done tells that a step succeeded.
func (f Func) Done(cluster, text string) { f.tell(Done, cluster, text) }

// Warning tells what the user should know.
func (f Func) Warning(cluster, text string) { f.tell(Warning, cluster, text) }

// Failed tells that a step failed.
func (f Func) Failed(cluster, text string) { f.tell(Failed, cluster, text) }

// Ended ends a wait without a word.
func (f Func) Ended(cluster string) { f.tell(Ended, cluster, "") }

func (f Func) tell(k Kind, cluster, text string) {
	if f != nil {
		f(Event{Kind: k, Cluster: cluster, Text: text})
	}
}
