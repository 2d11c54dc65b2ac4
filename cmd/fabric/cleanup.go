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

With --leave-links it gives the node back to Liqo's node agent: the Geneve links
stay, with their names, MAC and IP addresses and without fabric's mark. To lose no
packet, let Liqo's agent make its rules and routes before; fabric must have ended,
as it would remove them.

Stop fabric first: while it runs, it restores what is removed. On a node of a
cluster, run cleanup in the network namespace of the node, as in a pod with
hostNetwork.

Usage:
  fabric cleanup [--dry-run] [--leave-links]

Flags:
`

const cleanupTail = `
Examples:
  fabric cleanup --dry-run        # only show what would be removed
  fabric cleanup --leave-links    # Liqo's node agent goes on with the links

Exit status: 0 if nothing is left, 1 after an error.
`

// cleanup removes what carries our mark.
func cleanup(args []string, stdout io.Writer) error {
	fs := daemon.NewFlagSet("fabric cleanup", nil)
	dry := fs.Bool("dry-run", false, "only show what would be removed; fabric may be running")
	leave := fs.Bool("leave-links", false, "leave the Geneve links to Liqo's node agent")
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
	plan := removeAll
	if *leave {
		plan = hostnet.GiveBack
	}
	err = errors.Join(remove(host, plan, *dry, stdout), host.Close())
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

// removeAll leads from what there is to nothing of ours.
func removeAll(have hostnet.Actual) hostnet.Plan { return hostnet.Diff(hostnet.Desired{}, have) }

// remove takes away what a plan says and looks whether it has gone.
func remove(h host, planFor func(hostnet.Actual) hostnet.Plan, dry bool, stdout io.Writer) error {
	actual, err := h.Read()
	if err != nil {
		return err
	}
	plan := planFor(actual)
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
	if left := planFor(actual); !left.Empty() {
		err := fmt.Errorf("not everything is gone; left is:\n  %s", strings.Join(left.Lines(), "\n  "))
		return errors.Join(applied, err)
	}
	return nil // also where a step failed because its object went away by itself
}
