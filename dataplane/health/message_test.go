package health

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/mutate"
)

var epoch = time.Date(2026, 1, 2, 15, 4, 5, 123456789, time.UTC)

func TestMessageBothWays(t *testing.T) {
	tests := []struct {
		name string
		text string
		msg  Message
	}{
		{
			name: "stock PING",
			text: `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05.123456789Z"}`,
			msg:  Message{ClusterID: "rome", Type: Ping, Timestamp: epoch},
		},
		{
			name: "with MTU",
			text: `{"clusterID":"rome","msgType":"PONG","timeStamp":"2026-01-02T15:04:05.123456789Z","mtu":1340}`,
			msg:  Message{ClusterID: "rome", Type: Pong, Timestamp: epoch, MTU: 1340},
		},
		{
			name: "another time zone",
			text: `{"clusterID":"","msgType":"PING","timeStamp":"2026-01-02T17:04:05.5+02:00"}`,
			msg:  Message{Type: Ping, Timestamp: time.Date(2026, 1, 2, 17, 4, 5, 500_000_000, time.FixedZone("", 7200))},
		},
		{
			name: "unknown type",
			text: `{"clusterID":"rome","msgType":"PANG","timeStamp":"2026-01-02T15:04:05.123456789Z"}`,
			msg:  Message{ClusterID: "rome", Type: "PANG", Timestamp: epoch},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.msg, got); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
			text, err := Encode(tt.msg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.text, string(text)); diff != "" {
				t.Errorf("Encode (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"nothing", ``},
		{"no JSON", `PING`},
		{"another JSON type", `[1]`},
		{"null", `null`},
		{"cut short", `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-0`},
		{"trailing bytes", `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z"}x`},
		{"no time", `{"clusterID":"rome","msgType":"PING"}`},
		{"zero time", `{"clusterID":"rome","msgType":"PING","timeStamp":"0001-01-01T00:00:00Z"}`},
		{"no such time", `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-02-30T00:00:00Z"}`},
		{"time as number", `{"clusterID":"rome","msgType":"PING","timeStamp":12}`},
		{"MTU as text", `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z","mtu":"1"}`},
		{"MTU beyond int", `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z","mtu":1e99}`},
		{"too long", `{"clusterID":"` + strings.Repeat("x", MaxMessage) + `","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z"}`},
		{"deep", strings.Repeat(`{"a":`, 200)},
	} {
		if m, err := Decode([]byte(tt.text)); err == nil {
			t.Errorf("%s: decoded to %+v", tt.name, m)
		}
	}
}

func TestFormatLatency(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "N/A"},
		{-time.Second, "N/A"},
		{1, "0μs"},
		{850 * time.Microsecond, "850μs"},
		{999_999, "999μs"},
		{time.Millisecond, "1ms"},
		{12*time.Millisecond + 999*time.Microsecond, "12ms"},
		{3 * time.Second, "3000ms"},
	} {
		if got := FormatLatency(tt.d); got != tt.want {
			t.Errorf("FormatLatency(%d) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

func FuzzDecode(t *testing.F) {
	f := mutate.New(t)
	for _, seed := range []string{
		`{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05.123456789Z","mtu":1340}`,
		`{"clusterID":"a<b&c","msgType":"PONG","timeStamp":"2026-01-02T15:04:05+23:59"}`,
		`{"CLUSTERID":"\ud800","msgtype":"PING","timeStamp":"9999-12-31T23:59:59.999999999-23:59"}`,
		`{}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		text, err := Encode(m)
		if err != nil {
			return // longer than allowed, or a time zone that RFC 3339 has not
		}
		again, err := Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !again.Timestamp.Equal(m.Timestamp) {
			t.Errorf("time %v became %v", m.Timestamp, again.Timestamp)
		}
		again.Timestamp = m.Timestamp
		if diff := cmp.Diff(m, again); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
