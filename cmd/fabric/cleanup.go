package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/hostnet"
)

const cleanupHead = `cleanup removes everything that fabric made in the current network namespace:
links, addresses, routes, rules and address translation. It touches nothing that
does not carry fabric's mark. It needs the capability NET_ADMIN; with --dry-run it
works without, but then cannot see the table of address translation, and says so.

Stop fabric first: while it runs, it restores what is removed. On a node of a
cluster, run cleanup in the network namespace of the node, as in a pod with
hostNetwork.

Usage:
  fabric cleanup [--dry-run]

Flags:
`

const cleanupTail = `
Examples:
  fabric cleanup --dry-run    # only show what would be removed

Exit status: 0 if nothing is left, 1 after an error.
`

// cleanup removes what carries our mark.
func cleanup(args []string, stdout io.Writer) error {
	fs := daemon.NewFlagSet("fabric cleanup", nil)
	dry := fs.Bool("dry-run", false, "only show what would be removed; fabric may be running")
	if err := daemon.Parse(fs, args, stdout, cleanupHead, cleanupTail); err != nil {
		return err
	}
	host, err := hostnet.Open()
	blind := errors.Is(err, hostnet.ErrNotPermitted)
	switch {
	case *dry && (blind || errors.Is(err, hostnet.ErrInUse)):
		if host, err = hostnet.OpenReadOnly(); err != nil {
			return err
		}
	case errors.Is(err, hostnet.ErrInUse):
		return fmt.Errorf("%w\nIt would make everything anew. In a cluster delete its DaemonSet: kubectl -n liqo-fabric delete daemonset liqo-fabric", err)
	case err != nil:
		return err
	}
	err = errors.Join(remove(host, *dry, stdout), host.Close())
	if err == nil && blind {
		fmt.Fprintf(stdout, "not seen for the lack of the capability NET_ADMIN: whether there is a table inet %s, which would be removed, too\n", hostnet.TranslationTable)
	}
	return err
}

// host is what cleanup needs of a hostnet.Conn.
type host interface {
	Read() (hostnet.Actual, error)
	Apply(hostnet.Plan) error
}

// remove takes everything of ours away and looks whether it has gone.
func remove(h host, dry bool, stdout io.Writer) error {
	actual, err := h.Read()
	if err != nil {
		return err
	}
	plan := hostnet.Diff(hostnet.Desired{}, actual)
	if plan.Empty() {
		fmt.Fprintln(stdout, "nothing to remove")
		return nil
	}
	for _, line := range plan.Lines() {
		fmt.Fprintln(stdout, line)
	}
	if dry {
		return nil
	}
	applied := h.Apply(plan)
	if actual, err = h.Read(); err != nil {
		return errors.Join(applied, err)
	}
	if left := hostnet.Diff(hostnet.Desired{}, actual); !left.Empty() {
		err := fmt.Errorf("not everything is gone; left is:\n  %s", strings.Join(left.Lines(), "\n  "))
		return errors.Join(applied, err)
	}
	return nil // also where a step failed because its object went away by itself
}
