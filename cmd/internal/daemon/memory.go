package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Memory is what the process uses, in bytes.
type Memory struct {
	Heap       uint64 `json:"heapBytes"`     // objects; may exceed Resident, as buffers count before they are touched
	Resident   uint64 `json:"residentBytes"` // zero where the system does not tell
	Limit      int64  `json:"limitBytes"`    // soft limit of the runtime; zero: none
	Goroutines int    `json:"goroutines"`
}

// ReadMemory measures this process.
func ReadMemory() Memory {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	m := Memory{
		Heap:       sample[0].Value.Uint64(),
		Resident:   residentBytes(),
		Limit:      debug.SetMemoryLimit(-1), // -1 only asks
		Goroutines: runtime.NumGoroutine(),
	}
	if m.Limit == noMemoryLimit {
		m.Limit = 0
	}
	return m
}

// noMemoryLimit is the runtime's word for none.
const noMemoryLimit = 1<<63 - 1

// residentBytes reads the second field of statm, which counts pages.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64) // zero says "not known"
	return pages * uint64(os.Getpagesize())
}

// LimitText is the limit for people.
func (m Memory) LimitText() string {
	if m.Limit > 0 {
		return "limit " + Size(uint64(m.Limit))
	}
	return "no limit"
}
