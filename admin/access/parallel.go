package access

import "sync"

// Parallel asks about each of several things, at most atOnce at the same time. The answers
// and the errors are in the order of the things.
func Parallel[A, B any](things []A, atOnce int, ask func(A) (B, error)) ([]B, []error) {
	answers, errs := make([]B, len(things)), make([]error, len(things))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, a := range things {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers[i], errs[i] = ask(a)
		})
	}
	wg.Wait()
	return answers, errs
}

// Together does something with all of several things at the same time. The errors are in
// the order of the things.
func Together[A any](things []A, do func(A) error) []error {
	_, errs := Parallel(things, len(things), func(a A) (struct{}, error) { return struct{}{}, do(a) })
	return errs
}
