package dataplane

import "time"

// MaxPathMTUs bounds what PathMTUs returns.
const MaxPathMTUs = maxPathMTUs

// PathMTUs returns how many paths with a smaller MTU are remembered.
func (f *Forwarder) PathMTUs() int { return int(f.pathMTUs.count.Load()) }

// UpkeepAt does one round of upkeep as if now had passed since New.
func (f *Forwarder) UpkeepAt(now time.Duration) { f.upkeepAt(int64(now)) }

// StopClock makes the time stand still. It is called before anything runs.
func (f *Forwarder) StopClock() { now := f.clock(); f.clock = func() int64 { return now } }

// SendOwn sends b to the peer as the gateway's own stack does.
func (f *Forwarder) SendOwn(b []byte) { f.send(f.own, b) }
