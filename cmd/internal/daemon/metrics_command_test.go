package daemon

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestMetricsCommand: it prints what the process serves, also where that is at all addresses,
// and tells what else answers there.
func TestMetricsCommand(t *testing.T) {
	served := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	metrics := served(pages.Metrics)
	other := served(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	}))
	none := httptest.NewServer(nil)
	none.Close()
	gone := strings.TrimPrefix(none.URL, "http://")
	_, port, _ := strings.Cut(metrics, ":")
	for _, tt := range []struct{ address, want, failure string }{
		{metrics, `test_n{l="?"} 3`, ""},
		{":" + port, `test_n{l="?"} 3`, ""},
		{other, "", "what answers at " + other + " serves no metrics: 200 OK, text/html"},
		{gone, "", "no gateway serves metrics at " + gone + ": is it running, and with this --metrics-address?"},
		{"0", "", "--metrics-address: name the address at which the gateway serves its metrics"},
	} {
		var out strings.Builder
		err := gateway.MetricsCommand(t.Context(), []string{"--metrics-address", tt.address}, &out, ":8082")
		if got := out.String(); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q", tt.address, got)
		}
		if err != nil && err.Error() != tt.failure || err == nil && tt.failure != "" {
			t.Errorf("%s: got %v\nwant %s", tt.address, err, tt.failure)
		}
	}
	if err := gateway.MetricsCommand(t.Context(), []string{"x"}, nil, ":8082"); !errors.As(err, new(UsageError)) {
		t.Errorf("an argument too many: %v", err)
	}
}
