package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// port is the value of a flag that names a port. Empty is 0, which leaves the choice to
// others, as Liqo's flags have it.
type port int32

// portFlag adds a flag that names a port.
func portFlag(fs *pflag.FlagSet, p *int32, name, usage string) { fs.Var((*port)(p), name, usage) }

// Set implements pflag.Value.
func (p *port) Set(text string) error {
	if text == "" {
		*p = 0
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	*p = port(n)
	return nil
}

// String implements pflag.Value. The default is said in words.
func (p *port) String() string {
	if *p == 0 {
		return ""
	}
	return strconv.Itoa(int(*p))
}

// Type implements pflag.Value.
func (p *port) Type() string { return "int32" }
