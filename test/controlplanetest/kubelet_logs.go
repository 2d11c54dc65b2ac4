package controlplanetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// logOptions are what a request for logs may ask. Times are not known: a log has
// none but what the program writes.
type logOptions struct {
	follow, previous bool
	tail, limit      int64 // negative: all
}

func parseLogOptions(q url.Values) (o logOptions, err error) {
	number := func(key string) (int64, error) {
		if q.Get(key) == "" {
			return -1, nil
		}
		return strconv.ParseInt(q.Get(key), 10, 64)
	}
	o.follow, o.previous = q.Get("follow") == "true", q.Get("previous") == "true"
	var errTail, errLimit error
	o.tail, errTail = number("tailLines")
	o.limit, errLimit = number("limitBytes")
	return o, errors.Join(errTail, errLimit)
}

// logs shows what a container has written.
func (s *kubeletServer) logs(w http.ResponseWriter, r *http.Request) {
	o, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, c := s.find(w, r)
	if c == nil {
		return
	}
	began, end, ok := c.logRange(o.previous)
	if !ok {
		http.Error(w, fmt.Sprintf("container %q in pod %q has no such log: it was not started, or not started again", c.spec.Name, r.PathValue("pod")), http.StatusBadRequest)
		return
	}
	f, err := os.Open(c.log)
	if err != nil { // it writes nothing, as nothing runs
		return
	}
	defer f.Close()
	if end < 0 {
		info, err := f.Stat()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		end = info.Size()
	}
	text := make([]byte, end-began)
	if _, err := f.ReadAt(text, began); err != nil && !errors.Is(err, io.EOF) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text = lastLines(text, o.tail)
	if o.limit >= 0 {
		text = text[:min(o.limit, int64(len(text)))]
	}
	if _, err := w.Write(text); err != nil || !o.follow || o.previous {
		return
	}
	_ = followLog(r.Context(), w, io.NewSectionReader(f, end, 1<<62), c) // the client is gone: nobody to tell
}

// lastLines returns the last n lines, or all where n is negative.
func lastLines(text []byte, n int64) []byte {
	if n < 0 {
		return text
	}
	for at := len(text); at > 0; {
		if n == 0 {
			return text[at:]
		}
		at = bytes.LastIndexByte(text[:at-1], '\n') + 1
		n--
		if at == 0 {
			break
		}
		if n == 0 {
			return text[at:]
		}
	}
	if n == 0 && len(text) == 0 {
		return nil
	}
	return text
}

// followLog writes what is added to a log, until the container ends or the
// client goes away.
func followLog(ctx context.Context, w http.ResponseWriter, from io.Reader, c *container) error {
	over, _ := c.up()
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil {
		return err
	}
	for tick := time.NewTicker(podTick / 2); ; {
		last := over.Err() != nil // before the copy, so that nothing is missed
		n, err := io.Copy(w, from)
		if n > 0 && err == nil {
			err = flush.Flush()
		}
		if err != nil || last {
			tick.Stop()
			return err
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-over.Done():
		case <-tick.C:
		}
	}
}
