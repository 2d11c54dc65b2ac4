package mirror

import (
	"testing"
	"time"
)

func TestText(t *testing.T) {
	age := func(time.Time) string { return "3m" }
	for _, tt := range []struct {
		state            State
		contact, objects string
	}{
		{State{}, "reading the objects of the cluster", ""},
		{State{Connected: true, Watches: []WatchState{{Name: "ips", Objects: 2, Synced: true}}}, "in contact with the API server", "2 ips"},
		{State{Away: time.Unix(1, 0), Error: "refused", Watches: []WatchState{{Name: "a", Synced: true}, {Name: "b"}}},
			"no contact with the API server for 3m: refused", "0 a, b not read yet"},
	} {
		if contact, objects := tt.state.Text(age); contact != tt.contact || objects != tt.objects {
			t.Errorf("%+v: %q, %q", tt.state, contact, objects)
		}
	}
}
