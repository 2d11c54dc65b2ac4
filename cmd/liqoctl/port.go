package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/text"
)

// ports is the value of a flag that names a port, or several, one for each tunnel. Empty
// and 0 leave the choice to others, as Liqo's flags have it.
type ports []int32

// portsFlag adds a flag that names ports.
func portsFlag(fs *pflag.FlagSet, p *[]int32, name, usage string) { fs.Var((*ports)(p), name, usage) }

// Set implements pflag.Value.
func (p *ports) Set(text string) error {
	*p = nil
	if text == "" || text == "0" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number", word)
		}
		*p = append(*p, int32(n))
	}
	return nil
}

// String implements pflag.Value. The default is said in words.
func (p *ports) String() string { return text.Join(*p, ",") }

// Type implements pflag.Value.
func (p *ports) Type() string { return "ports" }
