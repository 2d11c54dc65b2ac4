// Command plot draws the results of bench: it reads bench/results and writes SVG files
// beside them.
//
//	go run ./bench/plot
//
// What is drawn follows from the results alone: a test compares.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const folder = "bench/results"

func main() {
	plots, err := draw(os.DirFS(folder))
	for name, svg := range plots {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), svg, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// draw makes all plots of the results in a folder, by their names.
func draw(results fs.FS) (map[string][]byte, error) {
	all, err := readResults(results)
	if err != nil {
		return nil, err
	}
	commit, faults, err := readFaults(results)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"ratios.svg": ratios(all), "latency.svg": latency(all), "sizes.svg": sizes(all), "faults.svg": silences(commit, faults),
	}, nil
}
