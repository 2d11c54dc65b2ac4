package images

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push sends an image from its layout to the registry that its reference names, with the
// credentials that `docker login` has left. What the registry has already is not sent again.
func Push(ctx context.Context, i Image) error {
	tag, err := parseReference(i.Reference)
	if err != nil {
		return err
	}
	index, err := readLayout(i)
	if err != nil {
		return fmt.Errorf("read %s: %w", i.Layout, err)
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", i.Reference, err)
	}
	return nil
}

// readLayout is the image that lies in a layout.
func readLayout(i Image) (v1.ImageIndex, error) {
	digest, err := v1.NewHash(i.Digest)
	if err != nil {
		return nil, err
	}
	all, err := layout.ImageIndexFromPath(i.Layout)
	if err != nil {
		return nil, err
	}
	return all.ImageIndex(digest)
}
