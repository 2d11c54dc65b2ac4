package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/dataplane/capture"
)

// captureRequest is what shall be captured, and how much of it.
type captureRequest struct {
	Points   capture.Points
	Filter   *capture.Filter // nil: all
	Snaplen  int             // bytes of each packet; 0: all
	Count    uint64          // packets; 0: no limit
	MaxSize  uint64          // bytes of the file
	Duration time.Duration
}

// Defaults and bounds of a captureRequest: a capture that everybody has forgotten must
// come to an end.
const (
	defaultPoints   = "node,tunnel,dropped"
	defaultSnaplen  = 128
	defaultDuration = 5 * time.Minute

	minCaptureSize     = 10_000 // a file says some things before the first packet
	maxCaptureSize     = 100_000_000_000
	maxCaptureDuration = 24 * time.Hour
)

func (r captureRequest) validate() error {
	switch {
	case r.Snaplen < 0 || r.Snaplen > capture.MaxSnaplen:
		return fmt.Errorf("--snaplen: %d is not between 0 and %d", r.Snaplen, capture.MaxSnaplen)
	case r.MaxSize < minCaptureSize || r.MaxSize > maxCaptureSize:
		return fmt.Errorf("--max-size: %d bytes is not between 10kB and 100GB", r.MaxSize)
	case r.Duration <= 0 || r.Duration > maxCaptureDuration:
		return fmt.Errorf("--duration: %v is not between 0s and %v", r.Duration, maxCaptureDuration)
	}
	return nil
}

// capturePath is the page of the admin socket.
const capturePath = "/capture"

// query is the request as it goes over the admin socket.
func (r captureRequest) query() url.Values {
	q := url.Values{
		"point": {r.Points.String()}, "snaplen": {strconv.Itoa(r.Snaplen)}, "count": {strconv.FormatUint(r.Count, 10)},
		"size": {strconv.FormatUint(r.MaxSize, 10)}, "duration": {r.Duration.String()},
	}
	if r.Filter != nil {
		q.Set("filter", r.Filter.String())
	}
	return q
}

// parseCaptureRequest is the reverse of query.
func parseCaptureRequest(q url.Values) (r captureRequest, err error) {
	var errs [6]error
	r.Points, errs[0] = capture.ParsePoints(q.Get("point"))
	r.Filter, errs[1] = capture.ParseFilter(q.Get("filter"))
	r.Snaplen, errs[2] = strconv.Atoi(q.Get("snaplen"))
	r.Count, errs[3] = strconv.ParseUint(q.Get("count"), 10, 64)
	r.MaxSize, errs[4] = strconv.ParseUint(q.Get("size"), 10, 64)
	r.Duration, errs[5] = time.ParseDuration(q.Get("duration"))
	return r, cmp.Or(errors.Join(errs[:]...), r.validate())
}

// filterText is the filter as logs and files tell it.
func (r captureRequest) filterText() string {
	if r.Filter == nil {
		return ""
	}
	return r.Filter.String()
}

// parseSize reads bytes with a unit, such as 100MB or 64KiB.
func parseSize(text string) (uint64, error) {
	number := strings.TrimRight(text, "BKMGikmgb")
	unit, ok := map[string]float64{
		"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9,
		"ki": 1 << 10, "kib": 1 << 10, "mi": 1 << 20, "mib": 1 << 20, "gi": 1 << 30, "gib": 1 << 30,
	}[strings.ToLower(text[len(number):])]
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || n < 0 || n*unit > math.MaxInt64 || n != n {
		return 0, fmt.Errorf("%q is not a size such as 100MB or 64KiB", text)
	}
	return uint64(n * unit), nil
}
