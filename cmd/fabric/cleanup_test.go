package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/node/hostnet"
)

// fakeHost is a network that holds something of ours.
type fakeHost struct {
	actual  hostnet.Actual
	refuse  bool
	applies int
}

func (h *fakeHost) Read() (hostnet.Actual, error) { return h.actual, nil }

func (h *fakeHost) Apply(hostnet.Plan) error {
	h.applies++
	if h.refuse {
		return errors.New("device or resource busy")
	}
	h.actual = hostnet.Actual{}
	return nil
}

func TestRemove(t *testing.T) {
	something := hostnet.Actual{Rules: []hostnet.Rule{{Priority: 600}}}
	link := hostnet.Actual{Links: []hostnet.ActualLink{{Name: "liqo.milan", Kind: hostnet.KindGeneve, Alias: hostnet.AliasPrefix + "milan"}}}
	for _, tt := range []struct {
		name    string
		host    fakeHost
		plan    func(hostnet.Actual) hostnet.Plan
		dry     bool
		applies int
		out     string
		err     []string
	}{
		{"nothing there", fakeHost{}, removeAll, false, 0, "nothing to remove\n", nil},
		{"a rule", fakeHost{actual: something}, removeAll, false, 1, "remove rule 600: not from all fwmark 0x5c lookup 6091\n", nil},
		{"only looking", fakeHost{actual: something}, removeAll, true, 0, "remove rule 600: not from all fwmark 0x5c lookup 6091\n", nil},
		{"a link", fakeHost{actual: link}, removeAll, false, 1, "remove link liqo.milan: nothing asks for it\n", nil},
		{"a link that Liqo gets back", fakeHost{actual: link}, hostnet.GiveBack, false, 1, "leave link liqo.milan to Liqo: without alias\n", nil},
		{"the kernel refuses", fakeHost{actual: something, refuse: true}, removeAll, false, 1, "remove rule 600: not from all fwmark 0x5c lookup 6091\n",
			[]string{"device or resource busy", "not everything is gone; left is:\n  remove rule 600"}},
	} {
		var out strings.Builder
		err := remove(&tt.host, tt.plan, tt.dry, &out)
		if out.String() != tt.out || tt.host.applies != tt.applies || (err != nil) != (tt.err != nil) {
			t.Errorf("%s: %d applies, %v, output %q", tt.name, tt.host.applies, err, out.String())
		}
		for _, want := range tt.err {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", tt.name, err, want)
			}
		}
	}
}
