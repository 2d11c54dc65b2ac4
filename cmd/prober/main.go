// Command prober is the image of `liqoctl test network`: a server that says who it is and
// from where it was asked, and a client that tries addresses and prints what it
// found as lines of JSON.
//
// It needs no privilege, reads no file and knows no Kubernetes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-net/sluice/admin/probe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &probe.Program{Identity: probe.Identity{
		Cluster: os.Getenv(probe.EnvCluster), Pod: os.Getenv(probe.EnvPod), Node: os.Getenv(probe.EnvNode),
	}}
	os.Exit(p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
