package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/controlplane/gatewaysync"
	"github.com/sluice-net/sluice/controlplane/gatewaysync/cluster"
	"github.com/sluice-net/sluice/controlplane/mirror"
	"github.com/sluice-net/sluice/dataplane"
)

// report is everything that "gateway status" shows. Its JSON form is what
// scripts read: fields are added, not renamed.
type report struct {
	Version   string            `json:"version"`
	Time      time.Time         `json:"time"`
	Started   time.Time         `json:"started"`
	Manifests string            `json:"manifests,omitempty"` // empty: in a cluster
	Cluster   *clusterReport    `json:"cluster,omitempty"`   // nil: standalone
	Sync      gatewaysync.State `json:"sync"`
	DataPlane dataplane.Status  `json:"dataPlane"`
	Memory    memory            `json:"memory"`
}

// clusterReport is what only a gateway in a cluster has to say.
type clusterReport struct {
	API      mirror.State           `json:"api"`
	Election *cluster.ElectionState `json:"election,omitempty"` // nil: the only replica
}

// memory is what the process uses, in bytes.
type memory struct {
	Heap       uint64 `json:"heapBytes"`     // objects; may exceed Resident, as buffers count before they are touched
	Resident   uint64 `json:"residentBytes"` // zero where the system does not tell
	Limit      int64  `json:"limitBytes"`    // soft limit of the runtime; zero: none
	Goroutines int    `json:"goroutines"`
}

func readMemory() memory {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	m := memory{
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
