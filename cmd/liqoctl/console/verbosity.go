package console

import (
	"fmt"
	"strconv"
)

// verbosity is the value of -v: a level, "+1" for the bare flag, and true or
// false for those who know it as a switch.
type verbosity int

func (v *verbosity) Set(s string) error {
	switch s {
	case "+1":
		*v++
		return nil
	case "true":
		*v = 1
		return nil
	case "false":
		*v = 0
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 10 {
		return fmt.Errorf("%q is not a level: use 0 to 10", s)
	}
	*v = verbosity(n)
	return nil
}

func (v *verbosity) String() string { return strconv.Itoa(int(*v)) }
func (*verbosity) Type() string     { return "level" }
