package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// statusOptions are the flags of the status command, checked.
type statusOptions struct {
	adminSocket string
	json        bool
	all         bool
}

const statusHead = `status shows what a running gateway does: the peer, the nodes, translations,
routes, flows, drops by reason, the offloads in use and memory.

Usage:
  gateway status [--admin-socket PATH] [-o text|json] [-a]

Flags:
`

const statusTail = `
Examples:
  gateway status
  gateway status -o json | jq .dataPlane.egress.verdicts
`

// parseStatusFlags reads the command line of the status command.
func parseStatusFlags(args []string, stdout io.Writer) (statusOptions, error) {
	o := statusOptions{}
	fs := newFlagSet("gateway status")
	fs.StringVar(&o.adminSocket, "admin-socket", "", "`PATH` of the gateway's socket (default "+defaultSocketText+")")
	output := fs.StringP("output", "o", "text", "`format`: text or json")
	fs.BoolVarP(&o.all, "all", "a", false, "show every route, where text output shows the first few")
	if err := parse(fs, args, stdout, statusHead, statusTail); err != nil {
		return o, err
	}
	if o.json = *output == "json"; !o.json && *output != "text" {
		return o, usagef("-o: %q is neither text nor json", *output)
	}
	if o.adminSocket == "" {
		o.adminSocket = defaultAdminSocket()
	}
	return o, nil
}

// showStatus asks the gateway and prints its answer.
func showStatus(ctx context.Context, o statusOptions, stdout io.Writer) error {
	body, err := fetchStatus(ctx, o.adminSocket)
	if err != nil {
		return err
	}
	if o.json {
		_, err = stdout.Write(body)
		return err
	}
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the gateway's answer is of another version: %w", err)
	}
	return writeStatus(stdout, r, o.all)
}

// maxStatus bounds the answer that is read: a hundred thousand routes.
const maxStatus = 64 << 20

func fetchStatus(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	// The host is not used; HTTP wants one.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no gateway answers on %s: is it running, and with this --admin-socket?", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s belongs to another user: run status as the user of the gateway", path)
	case err != nil:
		return nil, fmt.Errorf("ask the gateway on %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the gateway on %s: %w", path, err)
	}
	return body, nil
}
