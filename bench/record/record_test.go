package record

import "testing"

func TestSpread(t *testing.T) {
	for want, samples := range map[string][]float64{
		"-":            nil,
		"2 (2 to 2)":   {2},
		"2.5 (1 to 9)": {3, 9, 1, 2},
		"3 (1 to 9)":   {9, 3, 1},
	} {
		if got := Spread(samples); got != want {
			t.Errorf("%v: %s, want %s", samples, got, want)
		}
	}
}

func TestCircumstances(t *testing.T) {
	for _, f := range Circumstances() {
		if f.Value == "" || f.Value == "unknown" {
			t.Errorf("%s: %q", f.Name, f.Value)
		}
	}
}
