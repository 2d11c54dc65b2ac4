package controlplanetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumes are the folders of a pod.
type volumes struct {
	k      *Kubelet
	pod    *corev1.Pod
	dir    string
	synced time.Time
	held   map[string][sha256.Size]byte // what a volume holds, by its name
	serial int
}

// volumePeriod is how often Secrets and ConfigMaps are looked at again; a
// kubelet takes a minute.
const volumePeriod = 500 * time.Millisecond

// path is the folder of a volume. Sockets may lie in it, so it is short.
func (v *volumes) path(name string) string { return volumePath(v.pod, v.dir, name) }

func volumePath(pod *corev1.Pod, dir, name string) string {
	for i, vol := range pod.Spec.Volumes {
		if vol.Name == name {
			return filepath.Join(dir, strconv.Itoa(i))
		}
	}
	return filepath.Join(dir, "none")
}

// sync makes every volume hold what it should.
func (v *volumes) sync(ctx context.Context) error {
	if time.Since(v.synced) < volumePeriod {
		return nil
	}
	if v.held == nil {
		v.held = make(map[string][sha256.Size]byte)
		if err := os.MkdirAll(v.dir, 0o755); err != nil {
			return err
		}
	}
	for i := range v.pod.Spec.Volumes {
		vol := &v.pod.Spec.Volumes[i]
		if err := v.syncOne(ctx, vol); err != nil {
			return fmt.Errorf("volume %s: %w", vol.Name, err)
		}
	}
	v.synced = time.Now()
	return nil
}

func (v *volumes) syncOne(ctx context.Context, vol *corev1.Volume) error {
	dir := v.path(vol.Name)
	core := v.k.cluster.Clientset.CoreV1()
	switch {
	case vol.EmptyDir != nil:
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		return os.Chmod(dir, 0o777) // past the umask
	case vol.Secret != nil:
		s, err := core.Secrets(v.pod.Namespace).Get(ctx, vol.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return v.missing(vol, vol.Secret.Optional, err)
		}
		return v.write(vol.Name, dir, vol.Secret.Items, vol.Secret.DefaultMode, s.Data)
	case vol.ConfigMap != nil:
		m, err := core.ConfigMaps(v.pod.Namespace).Get(ctx, vol.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return v.missing(vol, vol.ConfigMap.Optional, err)
		}
		data := make(map[string][]byte)
		for key, text := range m.Data {
			data[key] = []byte(text)
		}
		maps.Copy(data, m.BinaryData)
		return v.write(vol.Name, dir, vol.ConfigMap.Items, vol.ConfigMap.DefaultMode, data)
	case vol.Projected != nil:
		return os.MkdirAll(dir, 0o755) // the token is in the kubeconfig
	case vol.HostPath != nil:
		return os.MkdirAll(dir, 0o755) // nothing of this machine
	}
	return errors.New("only emptyDir, Secret, ConfigMap and hostPath are known")
}

// missing decides about a volume whose source cannot be read. One that is
// mounted keeps what it holds.
func (v *volumes) missing(vol *corev1.Volume, optional *bool, err error) error {
	if _, mounted := v.held[vol.Name]; mounted {
		return nil
	}
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return os.MkdirAll(v.path(vol.Name), 0o755)
	}
	return err
}

// write puts files into a folder as a kubelet does: all of them at once, behind
// a link that is exchanged.
//
//	..1/key  ..data -> ..1  key -> ..data/key
func (v *volumes) write(name, dir string, items []corev1.KeyToPath, mode *int32, data map[string][]byte) error {
	files := data
	if items != nil {
		files = make(map[string][]byte)
		for _, i := range items {
			content, ok := data[i.Key]
			if !ok {
				return fmt.Errorf("no key %s", i.Key)
			}
			files[i.Path] = content
		}
	}
	sum := sumOf(files)
	if v.held[name] == sum {
		return nil
	}
	v.serial++
	version := ".." + strconv.Itoa(v.serial)
	if err := v.writeFiles(filepath.Join(dir, version), files, mode); err != nil {
		return err
	}
	link := filepath.Join(dir, "..data")
	old, _ := os.Readlink(link) // there is none at first
	if err := errors.Join(os.Symlink(version, link+"_tmp"), os.Rename(link+"_tmp", link)); err != nil {
		return err
	}
	for key := range files {
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := v.removeOld(dir, old, files); err != nil {
		return err
	}
	v.held[name] = sum
	return nil
}

func (v *volumes) writeFiles(dir string, files map[string][]byte, mode *int32) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	perm, group := os.FileMode(corev1.SecretVolumeSourceDefaultMode), -1
	if mode != nil {
		perm = os.FileMode(*mode)
	}
	if s := v.pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		perm, group = perm|0o440, int(*s.FSGroup)
	}
	for key, content := range files {
		path := filepath.Join(dir, key)
		if err := os.WriteFile(path, content, perm); err != nil {
			return err
		}
		if err := os.Chmod(path, perm); err != nil { // past the umask
			return err
		}
		if group >= 0 && os.Getuid() == 0 {
			if err := os.Chown(path, 0, group); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOld removes the version before, and the names that are gone.
func (v *volumes) removeOld(dir, version string, files map[string][]byte) error {
	if version == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := files[e.Name()]; !ok && e.Name()[0] != '.' {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(filepath.Join(dir, version))
}

func sumOf(files map[string][]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %q ", key, files[key])
	}
	h.Sum(sum[:0])
	return sum
}
