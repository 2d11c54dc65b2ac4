package mirror

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

	"github.com/sluice-net/sluice/objects/manifests"
)

// Contact knows which watches work, and logs the change from all to not all and
// back.
type Contact struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]string // why, by what is watched
	lost    time.Time         // since when there are any; zero: none
	regain  time.Time         // when the last of them was there again
}

// NewContact builds a Contact.
func NewContact(log *slog.Logger) *Contact {
	return &Contact{log: log, failing: make(map[string]string)}
}

// Note takes the outcome of one request.
func (c *Contact) Note(watch string, err error) {
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
		c.log.Warn("cannot read from the API server, what is in force stays", "what", watch, "error", PlainError(err))
	}
	if _, was := c.failing[watch]; !was { // the first reason is the telling one
		c.failing[watch] = PlainError(err)
	}
}

// PlainError drops method and URL, which differ from watch to watch.
func PlainError(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// Problems says what fails, each reason once.
func (c *Contact) Problems() (out manifests.Problems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watch := range slices.Sorted(maps.Keys(c.failing)) {
		p := manifests.Problem{Reason: "cannot read from the API server yet: " + c.failing[watch]}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Away returns since when there is no full contact, zero while there is, and one
// of the reasons.
func (c *Contact) Away() (since time.Time, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watch := range slices.Sorted(maps.Keys(c.failing)) {
		return c.lost, watch + ": " + c.failing[watch]
	}
	return time.Time{}, ""
}
