package mutate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var ipv4, _ = hex.DecodeString("45000014000000004011" + "0000" + "0a0000010a000002")

func seeds() [][]any {
	return [][]any{
		{[]byte("the first of two seeds"), uint16(7), true, "text"},
		{slices.Clone(ipv4), uint16(1), false, ""},
	}
}

// copied makes n inputs and copies them.
func copied(m *mutator, n int) (all [][]any) {
	for range n {
		in := slices.Clone(m.next())
		in[0] = bytes.Clone(in[0].([]byte))
		all = append(all, in)
	}
	return all
}

func equal(a, b []any) bool {
	return bytes.Equal(a[0].([]byte), b[0].([]byte)) && slices.Equal(a[1:], b[1:])
}

func TestInputsDependOnTheSeed(t *testing.T) {
	one, again, other := copied(newMutator(seeds(), 1, 2), 1000), copied(newMutator(seeds(), 1, 2), 1000), copied(newMutator(seeds(), 2, 2), 1000)
	if !slices.EqualFunc(one, again, equal) {
		t.Error("two runs of one seed differ")
	}
	if slices.EqualFunc(one, other, equal) {
		t.Error("runs of two seeds are the same")
	}
}

// TestVariety: inputs are shorter, longer and as long as their seeds, unchanged
// and changed, also in their other arguments, and the seeds stay.
func TestVariety(t *testing.T) {
	given := seeds()
	m := newMutator(given, 3, 4)
	saw := make(map[string]int)
	const n = 20000
	for range n {
		in := m.next()
		b := in[0].([]byte)
		switch {
		case bytes.Equal(b, ipv4):
			saw["unchanged"]++
		case len(b) < 20:
			saw["shorter"]++
		case len(b) > 22:
			saw["longer"]++
		}
		if v := in[1].(uint16); v != 7 && v != 1 {
			saw["another number"]++
		}
		if v := in[3].(string); v != "text" && v != "" {
			saw["another text"]++
		}
		if len(b) >= 20 && b[0] == 0x45 && !bytes.Equal(b[:20], ipv4) && sum(b[:20]) == 0xffff {
			saw["repaired"]++
		}
		if bytes.HasPrefix(b, []byte("the f")) && bytes.HasSuffix(b, ipv4[16:]) {
			saw["spliced"]++
		}
	}
	for _, what := range []string{"unchanged", "shorter", "longer", "another number", "another text", "repaired", "spliced"} {
		if saw[what] == 0 {
			t.Errorf("none of %d inputs is %s", n, what)
		}
	}
	if !slices.EqualFunc(given, seeds(), equal) {
		t.Error("the seeds were changed")
	}
	t.Log(saw)
}

// sum is the sum of RFC 1071, which of a valid header is 0xffff.
func sum(b []byte) uint16 {
	s := uint32(0)
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return uint16(s>>16 + s&0xffff)
}

// TestRun: a body is called with so many inputs, with or without other arguments.
func TestRun(t *testing.T) {
	m := newMutator(seeds(), 5, 6)
	calls := 0
	m.run(t, func(*testing.T, []byte, uint16, bool, string) { calls++ }, 100)
	m = newMutator([][]any{{[]byte("seed")}}, 5, 6)
	var last []byte
	m.run(t, func(_ *testing.T, b []byte) { calls, last = calls+1, b }, 100)
	if calls != 200 || !bytes.Equal(last, m.bytes) {
		t.Errorf("%d calls, want 200; the last input is %q, given was %q", calls, m.bytes, last)
	}
}

// fails makes FuzzNothing fail at some inputs.
const fails = "SLUICE_MUTATE_FAILS"

// FuzzNothing is a target as others are.
func FuzzNothing(t *testing.F) {
	f := New(t)
	f.Add([]byte("seed"), uint8(1))
	fail := os.Getenv(fails) != ""
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		if fail && len(b) == 3 {
			t.Fatal("three bytes")
		}
	})
}

// TestFlag: the flag gives a target so many inputs, and the one that fails is shown.
func TestFlag(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^FuzzNothing$", "-test.v", "-mutate.inputs=1000", "-mutate.seed=9"}
	out, err := exec.Command(self, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1000 inputs made from 1 seeds, -mutate.seed=9") {
		t.Errorf("%v\n%s", err, out)
	}
	broken := exec.Command(self, args...)
	broken.Env = append(os.Environ(), fails+"=1")
	out, err = broken.CombinedOutput()
	if shown := regexp.MustCompile(`input \d+ of -mutate.seed=9 failed, or was skipped: \[\]interface \{\}\{\[\]uint8\{(0x\w+, ){2}0x\w+\}, `); err == nil || !shown.Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}
