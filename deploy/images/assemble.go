package images

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The users that images know, and no other.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nsluice:x:65532:65532:sluice:/:/sbin/nologin\n"
	group  = "root:x:0:\nsluice:x:65532:\n"
)

// assemble makes an image of a program, for each platform that it is compiled for.
func assemble(p Program, binaries []binary, labels map[string]string, at time.Time) (v1.ImageIndex, error) {
	users, err := newLayer([]file{{"etc/passwd", 0o644, []byte(passwd)}, {"etc/group", 0o644, []byte(group)}}, at)
	if err != nil {
		return nil, err
	}
	index := v1.ImageIndex(empty.Index)
	for _, b := range binaries {
		program, err := newLayer([]file{{binDir + "/" + p.Name, 0o755, b.content}}, at)
		if err != nil {
			return nil, err
		}
		image, err := onePlatform(p, b.platform, []v1.Layer{users, program}, labels, at)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: b.platform}})
	}
	return mutate.Annotations(index, labels).(v1.ImageIndex), nil
}

// onePlatform makes the image for one platform.
func onePlatform(p Program, platform *v1.Platform, layers []v1.Layer, labels map[string]string, at time.Time) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: at},
		RootFS:  v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + binDir + "/" + p.Name},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			User:       p.User,
			WorkingDir: "/",
			Labels:     labels,
		},
	})
	if err != nil {
		return nil, err
	}
	for i, what := range []string{"users", p.Name} {
		image, err = mutate.Append(image, mutate.Addendum{Layer: layers[i], History: v1.History{Created: v1.Time{Time: at}, CreatedBy: what}})
		if err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, labels).(v1.Image), nil
}
