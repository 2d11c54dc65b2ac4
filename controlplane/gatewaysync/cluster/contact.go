package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/controlplane/gatewaysync"
)

// contact knows which watches work, and logs the change from all to not all and
// back.
type contact struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]string // why, by what is watched
	lost    time.Time         // since when there are any; zero: none
	regain  time.Time         // when the last of them was there again
}

func newContact(log *slog.Logger) *contact {
	return &contact{log: log, failing: make(map[string]string)}
}

// note takes the outcome of one request.
func (c *contact) note(watch string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The API server has answered, and the reflector knows what to do: read the
	// whole list, in the one way or in the other.
	if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		if _, was := c.failing[watch]; !was {
			return
		}
		if delete(c.failing, watch); len(c.failing) == 0 {
			c.regain = time.Now()
			c.log.Info("reading from the API server again", "away", time.Since(c.lost).Round(time.Second))
			c.lost = time.Time{}
		}
		return
	}
	if len(c.failing) == 0 {
		c.lost = time.Now()
		c.log.Warn("cannot read from the API server, what is in force stays", "what", watch, "error", plainError(err))
	}
	if _, was := c.failing[watch]; !was { // the first reason is the telling one
		c.failing[watch] = plainError(err)
	}
}

// plainError drops method and URL, which differ from watch to watch.
func plainError(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// problems says what fails, each reason once.
func (c *contact) problems() (out gatewaysync.Problems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watch := range slices.Sorted(maps.Keys(c.failing)) {
		p := gatewaysync.Problem{Reason: "cannot read from the API server yet: " + c.failing[watch]}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// away returns since when there is no full contact, zero while there is, and one
// of the reasons.
func (c *contact) away() (since time.Time, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watch := range slices.Sorted(maps.Keys(c.failing)) {
		return c.lost, watch + ": " + c.failing[watch]
	}
	return time.Time{}, ""
}
