// Command tar is as much of tar as `kubectl cp` runs in a container. Without arguments it waits, so that there is one, and
// says what it is told.
//
//	tar cf - FILE         FILE, as an archive, to standard output
//	tar -xmf - [-C DIR]   the files of an archive from standard input, into DIR
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
		go func() { _, _ = io.Copy(os.Stdout, os.Stdin) }() // for kubectl attach
		<-end
		return nil
	case len(args) == 3 && args[0] == "cf" && args[1] == "-":
		return create(os.Stdout, args[2])
	case slices.Equal(args, []string{"-xmf", "-"}):
		return extract(os.Stdin, ".")
	case len(args) == 4 && slices.Equal(args[:3], []string{"-xmf", "-", "-C"}):
		return extract(os.Stdin, args[3])
	}
	return fmt.Errorf("tar %q is not known here", args)
}

func create(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	header.Name = strings.TrimPrefix(path, "/") // as tar does
	w := tar.NewWriter(to)
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.Copy(w, f); err != nil {
		return err
	}
	return w.Close()
}

func extract(from io.Reader, dir string) error {
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(dir, filepath.Base(header.Name)))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
