package hostnet

import (
	"net/netip"
	"strings"
	"testing"
)

func TestFlowCheck(t *testing.T) {
	good := Flow{"liqo.milan", netip.MustParseAddr("10.243.1.5"), netip.MustParseAddr("10.71.2.20"), 443}
	for _, tt := range []struct {
		change func(*Flow)
		want   string
	}{
		{func(*Flow) {}, ""},
		{func(f *Flow) { f.Port = 0 }, ""},
		{func(f *Flow) { f.Pod, f.Peer = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2") }, ""},
		{func(f *Flow) { f.Link = "liqo." }, "not the name of a tunnel link"},
		{func(f *Flow) { f.Link = "eth0" }, "not the name of a tunnel link"},
		{func(f *Flow) { f.Link = "liqo.abcdefghijk" }, "not the name of a tunnel link"},
		{func(f *Flow) { f.Link = "liqo.a\x00b" }, "not the name of a tunnel link"},
		{func(f *Flow) { f.Link = "liqo.a b" }, "not the name of a tunnel link"},
		{func(f *Flow) { f.Pod = netip.Addr{} }, "addresses of hosts"},
		{func(f *Flow) { f.Peer = netip.IPv4Unspecified() }, "addresses of hosts"},
		{func(f *Flow) { f.Peer = netip.MustParseAddr("::ffff:10.71.2.20") }, "addresses of hosts"},
		{func(f *Flow) { f.Peer = netip.MustParseAddr("fd00::2") }, "one family"},
		{func(f *Flow) { f.Peer = f.Pod }, "one address"},
	} {
		f := good
		tt.change(&f)
		if err := f.Check(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", f, err, tt.want)
		}
	}
}
