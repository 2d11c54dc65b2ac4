package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sluice-net/sluice/deploy/images/gobuild"
)

// binary is a compiled program.
type binary struct {
	platform *v1.Platform
	content  []byte
	sha256   string
	info     *buildinfo.BuildInfo
}

// compile builds a program for a platform. What could differ between two machines is
// either left out of the binary or set here.
func (o Options) compile(ctx context.Context, p Program, platform, file string) (*binary, error) {
	target, err := platformOf(platform)
	if err != nil {
		return nil, err
	}
	build := gobuild.Build{
		Args: []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=" + o.Version, p.Package}, Dir: o.Root, File: file, Cache: o.Cache,
		Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+target.OS, "GOARCH="+target.Architecture,
			"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off"),
	}
	if err := build.Run(ctx); err != nil {
		return nil, fmt.Errorf("for %s: %w", platform, err)
	}
	return readBinary(file, target)
}

// readBinary reads a program of a platform.
func readBinary(file string, platform *v1.Platform) (*binary, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	sum := sha256.Sum256(content)
	return &binary{platform: platform, content: content, sha256: hex.EncodeToString(sum[:]), info: info}, nil
}
