package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane/capture"
)

// What a capture costs: its ring and a buffer, freed at its end, and the processor
// time for what it writes. That is bounded, or a capture of whole packets would take
// from the traffic that it shows.
const (
	captureRing = 4 << 20
	captureRate = 50_000_000 // bytes per second: the headers of 2.5 Gbit/s
	// capturePace is how often the ring is emptied. Waking up for every packet would
	// cost the packet path more than the copying.
	capturePace = 10 * time.Millisecond
	// captureChunk is what is written at once.
	captureChunk = 128 << 10
	// captureReport is how often the counters are told.
	captureReport = time.Second
	// captureGrace is how long a client may take for the end.
	captureGrace = 2 * time.Second
	// captureTail is what is left of the size for the counters at the end.
	captureTail = 1 << 10
)

// capturedEnough is the end of a capture that its client wants no more of.
const capturedEnough = "interrupted"

// serveCapture is the page that captureCommand asks for: a capture file, as it
// grows. All limits are kept here, so that a client that is lost or stops reading
// leaves nothing behind.
func (g *gateway) serveCapture(w http.ResponseWriter, r *http.Request) {
	request, err := parseCaptureRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := capture.New(capture.Config{Points: request.Points, Filter: request.Filter, Snaplen: request.Snaplen, Ring: captureRing})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	stop, err := g.forwarder.Capture(c)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	// Not kept until the next collection: a gateway is small.
	defer debug.FreeOSMemory()
	g.log.Info("capture begins", "points", request.Points, "filter", request.filterText(), "snaplen", request.Snaplen,
		"count", request.Count, "size", request.MaxSize, "duration", request.Duration)
	w.Header().Set("Content-Type", "application/x-pcapng")
	s := &captureStream{request: request, capture: c, stop: stop, out: w, control: http.NewResponseController(w)}
	why := s.run(r.Context())
	lost := uint64(0)
	for _, p := range request.Points.All() {
		lost += c.Counts(p).Lost
	}
	g.log.Info("capture ends", "points", request.Points, "filter", request.filterText(), "why", why,
		"packets", s.file.packets, "bytes", s.written, "lost", lost, "took", time.Since(s.file.started).Round(time.Millisecond))
}

// captureStream is a capture on its way to the client.
type captureStream struct {
	request captureRequest
	capture *capture.Capture
	stop    func() // ends the capture
	out     http.ResponseWriter
	control *http.ResponseController

	file    *captureFile
	buf     []byte // not written yet
	written uint64 // bytes
}

// run captures until a limit is reached or the client is gone, and returns which
// of it. The capture has ended then.
func (s *captureStream) run(ctx context.Context) (why string) {
	defer func() { s.stop() }()
	now := time.Now()
	// What cannot be written because nobody reads does not hold up the end.
	_ = s.control.SetWriteDeadline(now.Add(s.request.Duration + captureGrace))
	s.buf = make([]byte, 0, captureChunk+capture.MaxSnaplen/2)
	var begin []byte
	s.file, begin = newCaptureFile(s.request, now)
	s.buf = append(s.buf, begin...)
	end := time.NewTimer(s.request.Duration)
	defer end.Stop()
	pace := time.NewTicker(capturePace)
	defer pace.Stop()
	report := time.NewTicker(captureReport)
	defer report.Stop()
	if err := s.flush(); err != nil {
		return "the client is gone"
	}
	for last := now; ; {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), daemon.ErrEnding) {
				return s.finish("the gateway ends", true)
			}
			return s.finish(capturedEnough, true) // or the client is gone, and nobody reads that
		case <-end.C:
			return s.finish(fmt.Sprintf("%v are over", s.request.Duration), true)
		case <-report.C:
			s.buf = s.file.statistics(s.buf, s.capture, time.Now(), "")
		case <-pace.C:
		}
		now = time.Now()
		full, err := s.drain(int(captureRate * now.Sub(last).Seconds()))
		last = now
		switch {
		case full != "":
			return s.finish(full, false)
		case err == nil:
			err = s.flush()
		}
		if err != nil {
			return "the client is gone, or does not read"
		}
	}
}

// drain writes what has been captured since the last time, but no more than it may.
// Full is the limit that is reached, if one is.
func (s *captureStream) drain(budget int) (full string, err error) {
	for size := 0; size < budget; {
		r, ok := s.capture.Next()
		if !ok {
			return "", nil
		}
		before := len(s.buf)
		s.buf = s.file.packet(s.buf, &r)
		if s.written+uint64(len(s.buf)) > s.request.MaxSize-captureTail {
			s.buf = s.buf[:before]
			s.file.packets--
			return daemon.Size(s.request.MaxSize) + " are captured", nil
		}
		if s.request.Count > 0 && s.file.packets == s.request.Count {
			return captured(s.request.Count), nil
		}
		size += len(s.buf) - before
		if len(s.buf) >= captureChunk {
			if err := s.write(); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// write hands on what is in the buffer.
func (s *captureStream) write() error {
	n, err := s.out.Write(s.buf)
	s.written += uint64(n)
	s.buf = s.buf[:0]
	return err
}

// flush hands on what is in the buffer, and sees to it that it goes out.
func (s *captureStream) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	if err := s.write(); err != nil {
		return err
	}
	return s.control.Flush()
}

// finish ends the capture and writes the last counters, before them, where there
// is room, what is left.
func (s *captureStream) finish(why string, room bool) string {
	s.stop()
	s.stop = func() {}
	_ = s.control.SetWriteDeadline(time.Now().Add(captureGrace))
	if room {
		if _, err := s.drain(captureRing); err != nil {
			return why
		}
	}
	s.buf = s.file.statistics(s.buf, s.capture, time.Now(), why)
	_ = s.flush() // without the last counters the file is complete as well
	return why
}

// captured is why a capture of so many packets ends.
func captured(packets uint64) string {
	if packets == 1 {
		return "1 packet is captured"
	}
	return fmt.Sprintf("%d packets are captured", packets)
}
