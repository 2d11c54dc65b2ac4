package console

import (
	"os"

	"golang.org/x/sys/windows"
)

// understandsEscapes asks the console to interpret escape sequences, which it
// does not do by itself, and tells whether it will.
func understandsEscapes(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	return windows.GetConsoleMode(h, &mode) == nil && windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
