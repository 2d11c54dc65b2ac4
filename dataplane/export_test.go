package dataplane

import "time"

// Tend does one round of upkeep as if now had passed since New.
func (f *Forwarder) Tend(now time.Duration) { f.tend(int64(now)) }
