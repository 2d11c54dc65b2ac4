package dataplane

import "time"

// MaxPathMTUs bounds what PathMTUs returns.
const MaxPathMTUs = maxPathMTUs

// PathMTUs returns how many paths with a smaller MTU are remembered.
func (f *Forwarder) PathMTUs() int { return int(f.pathMTUs.count.Load()) }

// Tend does one round of upkeep as if now had passed since New.
func (f *Forwarder) Tend(now time.Duration) { f.tend(int64(now)) }
