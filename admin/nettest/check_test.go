package nettest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestSettles has a Service that does not answer at once, as nodes do not know it
// yet.
func TestSettles(t *testing.T) {
	var asked atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	r := &run{report: &Report{}}
	check := Check{Kind: ExternalToNodePort, From: Party{Name: "this machine"}, URL: service.URL + "/"}
	missing := Check{Kind: ExternalToNodePort, From: check.From, Missing: "no node port"}
	if err := r.check(t.Context(), []Check{check, missing}); err != nil {
		t.Fatal(err)
	}
	if o := r.report.Outcomes[0]; !o.OK || o.Tries != 1 || o.Note != "" {
		t.Errorf("outcome %+v, want one that nothing is to be said of", o)
	}
	if err := r.check(t.Context(), []Check{check}); err != nil {
		t.Fatal(err)
	}
	if got, want := asked.Load(), int32(4); got != want { // twice to settle, once for each check
		t.Errorf("asked %d times, want %d", got, want)
	}
}
