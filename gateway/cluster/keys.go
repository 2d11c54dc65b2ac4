package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// maxKeyFile is far above a key and keeps a mistaken mount out of memory.
const maxKeyFile = 4096

// keyFolder is the Secret with the gateway's keys, as the kubelet shows it. What
// was read once stays when the files go: a gateway works by the keys it has
// until there are others.
type keyFolder struct {
	dir string

	mu      sync.Mutex
	secret  *corev1.Secret // nil: never read. Never changed, only replaced
	err     error          // of the last reading
	changes uint64
}

// digest is that of objects that do not change but for the keys. No Mirror has it.
func (k *keyFolder) digest() (d manifests.Digest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d[0] = 2
	binary.BigEndian.PutUint64(d[1:], k.changes)
	return d
}

// load reads the files and reports whether anything is new.
func (k *keyFolder) load() bool {
	secret, err := readKeys(k.dir)
	k.mu.Lock()
	defer k.mu.Unlock()
	var changed bool
	if err != nil {
		changed = k.err == nil || k.err.Error() != err.Error()
		k.err = err
	} else {
		changed = k.err != nil || k.secret == nil || !sameKeys(k.secret, secret)
		k.secret, k.err = secret, nil
	}
	if changed {
		k.changes++
	}
	return changed
}

func sameKeys(a, b *corev1.Secret) bool {
	return string(a.Data[networkingv1beta1.PrivateKeyEntry]) == string(b.Data[networkingv1beta1.PrivateKeyEntry]) && string(a.Data[networkingv1beta1.PublicKeyEntry]) == string(b.Data[networkingv1beta1.PublicKeyEntry])
}

// get returns what Build takes for the gateway's Secret, and a warning if the
// files cannot be read now.
func (k *keyFolder) get() (secrets []manifests.Sourced[corev1.Secret], warnings manifests.Problems) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		warnings = manifests.Problems{{File: k.dir, Reason: "cannot read the keys: " + k.err.Error()}}
	}
	if k.secret != nil {
		secrets = append(secrets, manifests.Sourced[corev1.Secret]{Object: k.secret, Source: manifests.Source{File: k.dir}})
	}
	return secrets, warnings
}

// readKeys reads both files of one version of the Secret. A kubelet replaces
// them together, by swapping the link ..data, so they are read through what the
// link says once: the old private key with the new public key would be a
// mismatch that never was.
func readKeys(dir string) (*corev1.Secret, error) {
	if version, err := os.Readlink(filepath.Join(dir, "..data")); err == nil {
		dir = filepath.Join(dir, version)
	}
	private, err := readKey(filepath.Join(dir, networkingv1beta1.PrivateKeyEntry))
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{Data: map[string][]byte{networkingv1beta1.PrivateKeyEntry: private}}
	switch public, err := readKey(filepath.Join(dir, networkingv1beta1.PublicKeyEntry)); {
	case errors.Is(err, fs.ErrNotExist): // it follows from the other
	case err != nil:
		return nil, err
	default:
		s.Data[networkingv1beta1.PublicKeyEntry] = public
	}
	return s, nil
}

func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	key, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(key) > maxKeyFile {
		return nil, fmt.Errorf("%s is too long for a key", path)
	}
	return key, err
}
