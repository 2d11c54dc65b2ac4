package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/nettest"
)

// testFlags are what all tests share.
type testFlags struct {
	timeout  time.Duration
	failFast bool
}

func testCommand(a *app) *cobra.Command {
	f := &testFlags{}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Test the connection",
		Long:  "Test the connection by sending traffic through it.",
	}
	fs := cmd.PersistentFlags()
	fs.DurationVar(&f.timeout, "timeout", nettest.DefaultTimeout, "`TIME` that the test may take")
	fs.BoolVar(&f.failFast, "fail-fast", false, "stop after the first group of checks in which one failed")
	cmd.AddCommand(testNetworkCommand(a, f))
	return cmd
}
