package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

func prefixes(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func addresses(ss ...string) (as []netip.Addr) {
	for _, s := range ss {
		as = append(as, netip.MustParseAddr(s))
	}
	return as
}

// fullTranslation has something of everything, with prefixes side by side and at
// both ends of the address space.
func fullTranslation() Translation {
	return Translation{
		Local:         prefixes("10.243.0.0/16", "fd00:243::/48"),
		Remote:        prefixes("0.0.0.0/8", "10.60.0.0/16", "10.61.0.0/16", "10.62.3.4/32", "255.255.255.0/24", "fd00:60::/48", "fd00:60:1::/48", "ff00::/8"),
		UnknownSource: addresses("10.70.0.0", "fd00:70::"),
		Hosts: []HostMapping{
			{External: netip.MustParseAddr("10.70.0.9"), Host: netip.MustParseAddr("192.0.2.80")},
			{External: netip.MustParseAddr("10.70.0.10"), Host: netip.MustParseAddr("192.0.2.80")},
			{External: netip.MustParseAddr("fd00:70::9"), Host: netip.MustParseAddr("2001:db8::80")},
		},
		Gateways: addresses("10.243.1.7", "fd00:243::7"),
		Port:     6091,
	}
}

// translate applies what leads to want, and demands that nothing is left to do.
func translate(t *testing.T, n *nft, want Translation) {
	t.Helper()
	for _, c := range diffTranslation(want, readTable(t, n)) {
		if err := n.apply(c); err != nil {
			t.Fatal(err)
		}
	}
	if left := planned(want, readTable(t, n)); left != "" {
		t.Fatalf("left to do after that: %s", left)
	}
}

func readTable(t *testing.T, n *nft) TranslationState {
	t.Helper()
	s, err := n.read()
	if err != nil {
		t.Fatal(err)
	}
	if !s.Available {
		t.Skipf("SKIPPED: %s", s.Reason)
	}
	return s
}

// planned is what Diff would do, for people.
func planned(want Translation, have TranslationState) string {
	var lines []string
	for _, c := range diffTranslation(want, have) {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n")
}

// ownNamespace puts the test's goroutine into a network namespace of its own.
// The thread ends with the goroutine.
func ownNamespace(t *testing.T) {
	t.Helper()
	source.NeedRoot(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", err)
	}
}

func openTable(t *testing.T) *nft {
	t.Helper()
	ownNamespace(t)
	n := openNFT()
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// nftCommand calls nft(8) in the namespace of the thread.
func nftCommand(t *testing.T, command string) string {
	t.Helper()
	source.NeedPrograms(t, "nft")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(command)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
	return string(out)
}

// TestTranslationChanges leads one table through all states that it can be in.
func TestTranslationChanges(t *testing.T) {
	n := openTable(t)
	want := fullTranslation()
	for _, step := range []struct {
		name   string
		change func(*Translation)
		plan   string
	}{
		{"nothing yet", func(w *Translation) { *w = Translation{Port: 6091, Local: w.Local} }, ""},
		{"first", func(w *Translation) { *w = fullTranslation() },
			"add table inet sluice-fabric: 2 local and 8 remote prefixes, unknown source [10.70.0.0 fd00:70::], 3 mapped hosts, 2 gateways"},
		{"same", func(*Translation) {}, ""},
		{"another peer", func(w *Translation) { w.Remote = append(w.Remote, prefixes("10.5.0.0/16", "fd00:5::/48")...) },
			"change table inet sluice-fabric: add 10.5.0.0/16 to remote4, add fd00:5::/48 to remote6"},
		{"longer prefix in place of a shorter one", func(w *Translation) { w.Remote[1] = netip.MustParsePrefix("10.60.128.0/17") },
			"change table inet sluice-fabric: add 10.60.128.0/17 to remote4, remove 10.60.0.0/16 from remote4"},
		{"prefix in a prefix", func(w *Translation) { w.Remote = append(w.Remote, prefixes("10.61.7.0/24")...) }, ""},
		{"gateway moved", func(w *Translation) { w.Gateways[0] = netip.MustParseAddr("10.243.2.9") },
			"change table inet sluice-fabric: add 10.243.2.9 to gateways4, remove 10.243.1.7 from gateways4"},
		{"host moved", func(w *Translation) { w.Hosts[0].Host = netip.MustParseAddr("192.0.2.81") },
			"change table inet sluice-fabric: add 10.70.0.9 : 192.0.2.81 to external4, remove 10.70.0.9 : 192.0.2.80 from external4, add 192.0.2.81 to hosts4"},
		{"no gateway", func(w *Translation) { w.Gateways = nil }, "replace table inet sluice-fabric: chain input (type filter, hook input, priority 0, policy accept) is not ours"},
		{"other unknown source", func(w *Translation) { w.UnknownSource[0] = netip.MustParseAddr("10.70.0.1") },
			"replace table inet sluice-fabric: chain postrouting: rule 4 differs (others_unknown: remote clusters see one address for all that is no pod)"},
		{"no unknown source", func(w *Translation) { w.UnknownSource = nil },
			"replace table inet sluice-fabric: chain postrouting: rule 4 differs (peers_masqueraded: mapped hosts see this node instead of remote clusters)"},
		{"all hidden", func(w *Translation) { w.HideAll, w.UnknownSource = true, addresses("10.70.0.0", "fd00:70::") },
			"replace table inet sluice-fabric: chain postrouting: rule 3 differs (others_unknown: remote clusters see one address for all that is no pod)"},
		{"everywhere", func(w *Translation) { w.Remote = prefixes("0.0.0.0/0", "::/0") },
			"change table inet sluice-fabric: add 0.0.0.0/0 to remote4, remove 0.0.0.0/8 10.5.0.0/16 10.60.128.0/17 and 3 more from remote4, add ::/0 to remote6, remove fd00:5::/48 fd00:60::/48 fd00:60:1::/48 and 1 more from remote6"},
		{"cleanup", func(w *Translation) { *w = Translation{} }, "remove table inet sluice-fabric"},
		{"cleaned", func(*Translation) {}, ""},
	} {
		step.change(&want)
		if d := cmp.Diff(step.plan, planned(want, readTable(t, n))); d != "" {
			t.Errorf("%s: plan (-want +got):\n%s", step.name, d)
		}
		translate(t, n, want)
	}
	if out := nftCommand(t, "list ruleset"); out != "" {
		t.Errorf("left behind:\n%s", out)
	}
}

// TestTranslationReadsWell shows the table to nft(8).
func TestTranslationReadsWell(t *testing.T) {
	n := openTable(t)
	translate(t, n, fullTranslation())
	got := nftCommand(t, "list table inet "+TranslationTable)
	want, err := os.ReadFile("testdata/table.nft")
	if err != nil {
		t.Fatal(err)
	}
	// Versions of nft(8) break lines in different places.
	if d := cmp.Diff(strings.Fields(string(want)), strings.Fields(got)); d != "" {
		t.Errorf("nft list table (-want +got):\n%s", d)
	}
}

// TestTamperedTranslation changes the table by hand.
func TestTamperedTranslation(t *testing.T) {
	const table = "inet " + TranslationTable
	for _, test := range []struct{ name, command, plan string }{
		{"table deleted", "delete table " + table, "add table "},
		{"ruleset flushed", "flush ruleset", "add table "},
		{"rules flushed", "flush table " + table, "replace table inet sluice-fabric: chain input: rule 1 is missing"},
		{"chain flushed", "flush chain " + table + " postrouting", "replace table inet sluice-fabric: chain postrouting: rule 1 is missing"},
		{"chain deleted", "flush chain " + table + " output; delete chain " + table + " output", "replace table inet sluice-fabric: chain output (type nat, hook output, priority -101, policy accept) is missing"},
		{"rule added", "add rule " + table + " input tcp dport 22 drop", "replace table inet sluice-fabric: chain input: rule 3 is too many"},
		{"rule before", "insert rule " + table + " postrouting masquerade", "replace table inet sluice-fabric: chain postrouting: rule 1 differs"},
		{"chain added", "add chain " + table + " forward { type filter hook forward priority 0; policy drop; }", "replace table inet sluice-fabric: chain forward (type filter, hook forward, priority 0, policy drop) is not ours"},
		{"policy", "add chain " + table + " input { policy drop; }", "replace table inet sluice-fabric: chain input (type filter, hook input, priority 0, policy accept) is missing"},
		{"dormant", "add table " + table + " { flags dormant; }", "replace table inet sluice-fabric: it has flags"},
		{"set added", "add set " + table + " mine { type ipv4_addr; }", "replace table inet sluice-fabric: set mine (ipv4_addr) is not ours"},
		{"set flushed", "flush set " + table + " remote4", "change table inet sluice-fabric: add 0.0.0.0/8 10.60.0.0/16 10.61.0.0/16 and 2 more to remote4"},
		{"element added", "add element " + table + " local4 { 10.1.0.0/16 }", "change table inet sluice-fabric: remove 10.1.0.0/16 from local4"},
		{"range added", "add element " + table + " local4 { 10.1.0.3-10.1.0.9 }", "change table inet sluice-fabric: remove 10.1.0.3-10.1.0.9 from local4"},
		{"element deleted", "delete element " + table + " gateways6 { fd00:243::7 }", "change table inet sluice-fabric: add fd00:243::7 to gateways6"},
		{"mapping changed", "delete element " + table + " external4 { 10.70.0.9 }; add element " + table + " external4 { 10.70.0.9 : 192.0.2.66 }",
			"change table inet sluice-fabric: add 10.70.0.9 : 192.0.2.80 to external4, remove 10.70.0.9 : 192.0.2.66 from external4"},
		{"another table", "add table inet other", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := openTable(t)
			translate(t, n, fullTranslation())
			nftCommand(t, test.command)
			plan := planned(fullTranslation(), readTable(t, n))
			if !strings.HasPrefix(plan, test.plan) || (test.plan == "") != (plan == "") {
				t.Errorf("plan: %q, want %q...", plan, test.plan)
			}
			translate(t, n, fullTranslation())
		})
	}
}

// TestRuleDeleted deletes each rule, one after the other.
func TestRuleDeleted(t *testing.T) {
	n := openTable(t)
	want := fullTranslation()
	translate(t, n, want)
	for _, c := range layoutOf(want).chains {
		for i, r := range c.rules {
			rules, err := n.conn.GetRules(&nftables.Table{Name: TranslationTable, Family: nftables.TableFamilyINet}, &nftables.Chain{Name: c.name})
			if err != nil {
				t.Fatal(err)
			}
			nftCommand(t, fmt.Sprintf("delete rule inet %s %s handle %d", TranslationTable, c.name, rules[i].Handle))
			if plan := planned(want, readTable(t, n)); !strings.HasPrefix(plan, "replace table inet sluice-fabric: chain "+c.name) {
				t.Errorf("chain %s without %q: plan %q", c.name, r.comment, plan)
			}
			translate(t, n, want)
		}
	}
}

// TestRefusedTranslation asks for something impossible: what is there stays, and
// the connection goes on working.
func TestRefusedTranslation(t *testing.T) {
	n := openTable(t)
	want := fullTranslation()
	translate(t, n, want)
	overlap := TranslationElement{First: netip.MustParseAddr("10.60.128.0"), Last: netip.MustParseAddr("10.61.3.255")}
	for range 3 {
		err := n.apply(TranslationChange{sets: []changeSet{{name: "remote4", add: []TranslationElement{overlap}}, {name: "remote6", remove: []TranslationElement{{First: netip.IPv6Loopback(), Last: netip.IPv6Loopback()}}}}})
		var refused *TranslationError
		if !errors.As(err, &refused) {
			t.Fatalf("overlapping interval: %v, want a TranslationError", err)
		}
		t.Log(err)
		if left := planned(want, readTable(t, n)); left != "" {
			t.Fatalf("the refused change left something behind: %s", left)
		}
	}
	want.Remote = append(want.Remote, prefixes("10.99.0.0/16")...)
	translate(t, n, want)
}

// kernelWithout is a kernel that refuses some requests, and knows no table.
func kernelWithout(errno unix.Errno, refuses func(netlink.Message) bool) nltest.Func {
	return func(req []netlink.Message) ([]netlink.Message, error) {
		var answers []netlink.Message
		for _, m := range req {
			code := unix.Errno(0)
			switch {
			case refuses(m):
				code = errno
			case m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE:
				code = unix.ENOENT
			case m.Header.Flags&netlink.Acknowledge == 0:
				continue
			}
			data := binary.NativeEndian.AppendUint32(nil, uint32(-int32(code)))
			answers = append(answers, netlink.Message{
				Header: netlink.Header{Type: netlink.Error, Sequence: m.Header.Sequence, PID: m.Header.PID},
				Data:   append(data, make([]byte, 16)...),
			})
		}
		return answers, nil
	}
}

func TestUnusableKernel(t *testing.T) {
	is := func(msg int) func(netlink.Message) bool {
		return func(m netlink.Message) bool {
			return m.Header.Type == netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8|msg)
		}
	}
	for _, test := range []struct {
		name   string
		dial   nltest.Func
		reason string
	}{
		{"no nf_tables", kernelWithout(unix.EINVAL, is(unix.NFT_MSG_GETTABLE)), "has no nf_tables: load the module nf_tables"},
		{"no privilege", kernelWithout(unix.EPERM, is(unix.NFT_MSG_GETTABLE)), "grant the capability NET_ADMIN"},
		{"no nat chains for inet", kernelWithout(unix.ENOENT, is(unix.NFT_MSG_NEWCHAIN)), "Linux 5.2 or newer"},
		{"no table of inet", kernelWithout(unix.EOPNOTSUPP, is(unix.NFT_MSG_NEWTABLE)), "Linux 5.2 or newer"},
		{"no masquerade", kernelWithout(unix.ENOENT, is(unix.NFT_MSG_NEWRULE)), "Linux 5.2 or newer"},
		{"all there", kernelWithout(0, func(netlink.Message) bool { return false }), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := openNFT(nftables.WithTestDial(test.dial))
			for range 2 {
				s, err := n.read()
				if err != nil {
					t.Fatal(err)
				}
				t.Log(s.Reason)
				if s.Available != (test.reason == "") || !strings.Contains(s.Reason, test.reason) || s.Exists {
					t.Errorf("got %+v, want a reason with %q", s, test.reason)
				}
				if plan := planned(fullTranslation(), s); s.Available == (plan == "") {
					t.Errorf("plan %q", plan)
				}
			}
		})
	}
}

// TestTranslationWithoutPrivilege asks a real kernel, without capabilities.
func TestTranslationWithoutPrivilege(t *testing.T) {
	ownNamespace(t)
	// Of this thread, which ends with the test.
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		t.Fatal(err)
	}
	n := openNFT()
	defer n.close()
	s, err := n.read()
	if err != nil || s.Available || !strings.Contains(s.Reason, "grant the capability NET_ADMIN") {
		t.Errorf("read: %+v, %v", s, err)
	}
	var refused *TranslationError
	if err := n.apply(TranslationChange{add: true, want: fullTranslation()}); !errors.As(err, &refused) || !errors.Is(err, unix.EPERM) {
		t.Errorf("apply: %v", err)
	}
}

// TestTranslationEvents listens to what the kernel says.
func TestTranslationEvents(t *testing.T) {
	n := openTable(t)
	listener, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := listener.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		t.Fatal(err)
	}
	// ours and others count notifications since the last call.
	heard := func() (ours, own int) {
		for {
			_ = listener.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			ms, err := listener.Receive()
			if err != nil {
				return ours, own
			}
			for _, m := range ms {
				if translationEvent(m) {
					ours++
					if m.Header.PID == n.pid() {
						own++
					}
				}
			}
		}
	}
	readTable(t, n) // probes
	if ours, _ := heard(); ours != 0 {
		t.Errorf("the probe made %d notifications about our table", ours)
	}
	translate(t, n, fullTranslation())
	if ours, own := heard(); ours == 0 || ours != own {
		t.Errorf("our change: %d notifications, %d of them known as our own", ours, own)
	}
	nftCommand(t, "add table inet other; add chain inet other c; add table ip6 sluice-fabric")
	if ours, _ := heard(); ours != 0 {
		t.Errorf("another table: %d notifications about ours", ours)
	}
	for _, command := range []string{
		"add element inet sluice-fabric local4 { 10.1.0.0/16 }", "flush set inet sluice-fabric remote6",
		"flush chain inet sluice-fabric output", "add set inet sluice-fabric s { type ipv4_addr; }", "delete table inet sluice-fabric",
	} {
		nftCommand(t, command)
		if ours, own := heard(); ours == 0 || own != 0 {
			t.Errorf("%s: %d notifications, %d taken for our own", command, ours, own)
		}
	}
}

// TestTranslationScale has 5000 peers.
func TestTranslationScale(t *testing.T) {
	n := openTable(t)
	want := fullTranslation()
	want.Remote = nil
	const peers = 5000
	for i := range peers {
		a := 0x0a000000 + uint32(i)*2*256 // every second /24 of 10.0.0.0/8
		want.Remote = append(want.Remote, netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, a))), 24))
		six := netip.MustParseAddr("fd00::").As16()
		binary.BigEndian.PutUint32(six[2:], uint32(i))
		want.Remote = append(want.Remote, netip.PrefixFrom(netip.AddrFrom16(six), 48))
	}
	measure := func(what string, f func()) {
		begin := time.Now()
		f()
		t.Logf("%-34s %v", what, time.Since(begin).Round(10*time.Microsecond))
	}
	var s TranslationState
	apply := func(what string) {
		t.Helper()
		plan := diffTranslation(want, s)
		if len(plan) != 1 {
			t.Fatalf("%s: plan %v", what, plan)
		}
		measure(what, func() {
			if err := n.apply(plan[0]); err != nil {
				t.Fatal(err)
			}
		})
		s = readTable(t, n)
	}
	s = readTable(t, n)
	apply("add 10000 prefixes")
	n.generation = 0
	measure("read", func() { s = readTable(t, n) })
	measure("read again", func() { s = readTable(t, n) })
	measure("find nothing to do", func() {
		if left := planned(want, s); left != "" {
			t.Errorf("left to do: %s", left)
		}
	})
	want.Remote = want.Remote[2:]
	apply("one peer less")
	want.Port = 6092
	apply("replace")
	if left := planned(want, s); left != "" {
		t.Errorf("left to do: %s", left)
	}
}
