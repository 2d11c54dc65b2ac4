package console

import (
	"bytes"
	"testing"

	"github.com/spf13/pflag"
)

func parse(c *Console, args []string) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(fs)
	return fs.Parse(args)
}

func TestDetect(t *testing.T) {
	tests := []struct {
		name  string
		env   map[string]string
		ascii bool
	}{
		{"no locale, as in containers", nil, false},
		{"UTF-8", map[string]string{"LANG": "en_US.UTF-8"}, false},
		{"POSIX", map[string]string{"LANG": "C"}, true},
		{"Latin-1 wins over LANG", map[string]string{"LC_CTYPE": "de_DE.ISO-8859-1", "LANG": "de_DE.UTF-8"}, true},
		{"LC_ALL wins", map[string]string{"LC_ALL": "C.utf8", "LANG": "C"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := detect(&bytes.Buffer{}, func(name string) string { return tt.env[name] })
			if s.ascii != tt.ascii {
				t.Errorf("ascii: %v, want %v", s.ascii, tt.ascii)
			}
			if s.terminal() || s.colours || s.width() != 0 {
				t.Errorf("a buffer is taken for a terminal: %+v", s)
			}
		})
	}
}
