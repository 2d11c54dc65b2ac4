// Command labctl brings up two Kubernetes clusters that Sluice connects, and
// leaves them running, to look around in.
//
//	labctl up      build them in the background and say how to look around
//	labctl down    remove them
//
// The nodes also get the images of the archives that the variable SLUICE_LAB_IMAGES names.
//
// It needs root, and what package kubelab does, which makes the clusters. The
// process that holds them is the same program; without it they end.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: labctl up|down"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch os.Args[1] {
	case "up":
		err = up(ctx)
	case "down":
		err = down(ctx)
	case "hold": // what up starts
		err = hold(ctx)
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
