// Command labctl builds two clusters out of network namespaces, joins them by
// two gateways and leaves them running, to look around in.
//
//	labctl up      build them in the background and say how to look around
//	labctl down    remove them
//
// It needs root. The work is package lab's, which the tests use as well.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: labctl up|down"))
	}
	var err error
	switch os.Args[1] {
	case "up":
		err = up()
	case "down":
		err = down()
	case "hold": // what up starts
		err = hold()
	default:
		err = fmt.Errorf("unknown command %q: up or down", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "labctl: %v\n", err)
	os.Exit(1)
}
