package virtualkubelet

import (
	"bytes"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestEndlessMetrics: of what a provider says of its pods so much is read, and no more.
func TestEndlessMetrics(t *testing.T) {
	answer := func(w http.ResponseWriter, bytesOfSpace int) {
		w.Header().Set("Content-Type", "application/json")
		space := bytes.Repeat([]byte(" "), 1<<20)
		for ; bytesOfSpace > 0; bytesOfSpace -= len(space) {
			if _, err := w.Write(space); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`{"items": [{"metadata": {"name": "web"}}]}`))
	}
	s := &session{core: hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/endless/") {
			answer(w, math.MaxInt)
		} else {
			answer(w, 15<<20)
		}
	})}
	if got, err := s.podMetrics(t.Context(), "long"); err != nil || len(got) != 1 {
		t.Errorf("a long answer: %v, %v", got, err)
	}
	if _, err := s.podMetrics(t.Context(), "endless"); err == nil || !strings.Contains(err.Error(), errAnswerTooLong.Error()) {
		t.Errorf("an endless one: %v", err)
	}
}

// TestWhole: what a provider says of many containers for years does not begin anew at zero.
func TestWhole(t *testing.T) {
	year := 365 * 24 * time.Hour.Seconds()
	c := containerUsage{cores: 1000 * maxCores, seconds: year * 1000 * maxCores, memory: 1000 * maxMemory}
	got := c.stats(time.Now())
	if got.CPU.UsageNanoCores != 1000*maxCores*1e9 || got.CPU.UsageCoreNanoSeconds != 1<<63 || got.Memory.WorkingSetBytes != 1<<63 {
		t.Errorf("%+v", got)
	}
	if whole(0.9) != 0 || whole(1.9) != 1 {
		t.Error("fractions")
	}
}
