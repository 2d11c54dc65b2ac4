package controlplanetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/test/source"
)

// pool returns the socket of the control planes: those of the run, or else of this
// process.
func pool() (socket string, err error) {
	if socket := os.Getenv(source.ControlPlanes); socket != "" {
		return socket, nil
	}
	return ownPool()
}

// ownPool starts control planes for this process.
var ownPool = sync.OnceValues(func() (socket string, err error) {
	cmd := exec.Command("go", "run", "./test/controlplanes")
	cmd.Dir, cmd.Stderr = source.Root(), os.Stderr
	if poolStdin, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	socket, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("go run ./test/controlplanes: it says no socket: %w", err)
	}
	return strings.TrimSpace(socket), nil
})

// poolStdin stays open to the end of this process, however that ends: then the control
// planes of ownPool end too.
var poolStdin io.Closer //lint:ignore unused it is held, and never read
