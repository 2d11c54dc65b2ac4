package dataplane

import "time"

// MaxPathMTUs bounds what PathMTUs returns.
const MaxPathMTUs = maxPathMTUs

// PathMTUs returns how many paths with a smaller MTU are remembered.
func (f *Forwarder) PathMTUs() int { return int(f.pathMTUs.count.Load()) }

// UpkeepAt does one round of upkeep as if now had passed since New.
func (f *Forwarder) UpkeepAt(now time.Duration) { f.upkeepAt(int64(now)) }
