package controlplanetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/test/process"
)

// command is what a container runs, with its arguments made fit for a process
// that has no file system and no network of its own.
func (w *podWorker) command(ctx context.Context, pod *corev1.Pod, c *container) (process.Command, error) {
	loopback := w.k.Loopback.Pod(w.address()).String()
	vars, env, err := w.environment(pod, c.spec)
	if err != nil {
		return process.Command{}, err
	}
	vars["LOOPBACK"] = loopback
	credential := credential(pod, c.spec)
	if vars["KUBECONFIG"], err = w.kubeconfig(ctx, pod, credential); err != nil {
		return process.Command{}, err
	}
	cmd := process.Command{Program: c.image.Program, Env: env, Dir: w.dir, Log: c.log, Credential: credential}
	words := append([]string(nil), c.image.Args...)
	if len(c.spec.Command) > 1 {
		words = append(words, c.spec.Command[1:]...)
	}
	for _, a := range append(words, c.spec.Args...) {
		cmd.Args = append(cmd.Args, listenOn(w.inHost(c.spec, expand(a, vars)), loopback))
	}
	return cmd, nil
}

// inHost replaces the paths of a container in an argument by real ones.
func (w *podWorker) inHost(spec *corev1.Container, arg string) string {
	for _, m := range spec.VolumeMounts {
		arg = replacePath(arg, m.MountPath, volumePath(w.first, w.dir, m.Name))
	}
	return arg
}

// runDir is the container's /run, for a program that looks there without being
// told: it has the mounts below /run.
func (w *podWorker) runDir(spec *corev1.Container) string {
	dir := filepath.Join(w.dir, "run-"+spec.Name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		return dir // it is there
	}
	_ = os.Chmod(dir, 0o777) // past the umask; without it the program says what it misses
	for _, m := range spec.VolumeMounts {
		if parent, name := filepath.Split(filepath.Clean(m.MountPath)); parent == "/run/" {
			_ = os.Symlink(volumePath(w.first, w.dir, m.Name), filepath.Join(dir, name))
		}
	}
	return dir
}

// environment returns the variables of a container, for its arguments and for
// its process.
func (w *podWorker) environment(pod *corev1.Pod, spec *corev1.Container) (vars map[string]string, env []string, err error) {
	vars = make(map[string]string)
	for _, e := range spec.Env {
		value := expand(e.Value, vars)
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil {
				return nil, nil, fmt.Errorf("variable %s: only values and fieldRefs are known", e.Name)
			}
			if value, err = w.field(pod, e.ValueFrom.FieldRef.FieldPath); err != nil {
				return nil, nil, fmt.Errorf("variable %s: %w", e.Name, err)
			}
		}
		vars[e.Name] = value
		env = append(env, e.Name+"="+value)
	}
	// The program may be built with the race detector, as the test is.
	return vars, append(env, "PATH="+os.Getenv("PATH"), "XDG_RUNTIME_DIR="+w.runDir(spec), "GORACE="+os.Getenv("GORACE")), nil
}

var metadataKey = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.*)'\]$`)

// field is the downward API.
func (w *podWorker) field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return w.node(), nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return w.address().String(), nil
	case "status.hostIP", "status.hostIPs":
		return w.k.node(w.node()).IP.String(), nil
	}
	if m := metadataKey.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return pod.Labels[m[2]], nil
		}
		return pod.Annotations[m[2]], nil
	}
	return "", fmt.Errorf("field %s is not known", path)
}

var variable = regexp.MustCompile(`\$(\$|\([A-Za-z_][A-Za-z0-9_.-]*\))`)

// expand replaces $(NAME) where the variable is known, and $$ by $.
func expand(s string, vars map[string]string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		if v, ok := vars[m[2:len(m)-1]]; ok {
			return v
		}
		return m
	})
}

// replacePath replaces a mount's path, and what is below it, by its folder.
func replacePath(arg, mount, dir string) string {
	head, rest, found := strings.Cut(arg, mount)
	if !found || strings.HasSuffix(head, "/") || rest != "" && rest[0] != '/' {
		return arg
	}
	return head + dir + rest
}

var anyAddress = regexp.MustCompile(`^(|-[^=]*=):([0-9]+)$`)

// listenOn puts an address in front of a port that is to be opened on all.
func listenOn(arg, address string) string {
	return anyAddress.ReplaceAllString(arg, "${1}"+address+":$2")
}

// credential is the user of a container, which only root can take on.
func credential(pod *corev1.Pod, spec *corev1.Container) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	c := &syscall.Credential{}
	if s := pod.Spec.SecurityContext; s != nil {
		c.Uid, c.Gid = id(s.RunAsUser, c.Uid), id(s.RunAsGroup, c.Gid)
		if s.FSGroup != nil {
			c.Groups = append(c.Groups, uint32(*s.FSGroup))
		}
	}
	if s := spec.SecurityContext; s != nil {
		c.Uid, c.Gid = id(s.RunAsUser, c.Uid), id(s.RunAsGroup, c.Gid)
	}
	return c
}

func id(set *int64, otherwise uint32) uint32 {
	if set == nil {
		return otherwise
	}
	return uint32(*set)
}

// kubeconfig writes the file with the rights of the pod's service account.
func (w *podWorker) kubeconfig(ctx context.Context, pod *corev1.Pod, user *syscall.Credential) (string, error) {
	if a := pod.Spec.AutomountServiceAccountToken; a != nil && !*a {
		return "", nil
	}
	cfg, err := w.k.cluster.serviceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return "", err
	}
	path, err := w.k.cluster.WriteKubeconfig("pods/"+string(pod.UID), cfg)
	if err != nil {
		return "", err
	}
	moved := w.dir + "/kubeconfig"
	if err := os.Rename(path, moved); err != nil {
		return "", err
	}
	if user != nil {
		return moved, os.Chown(moved, int(user.Uid), int(user.Gid))
	}
	return moved, nil
}
