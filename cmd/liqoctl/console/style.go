package console

import (
	_ "github.com/pterm/pterm"
	_ "golang.org/x/term"
	_ "k8s.io/cli-runtime/pkg/printers"
)
