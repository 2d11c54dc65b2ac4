package controlplanetest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// playPod as first argument makes the test binary the program of a pod,
// playCommand what is run there with kubectl exec.
const (
	playPod     = "play-pod"
	playCommand = "play-command"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == playPod {
		os.Exit(program(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == playCommand {
		os.Exit(command(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// seen is what the program of a pod sees around it.
type seen struct {
	PID, UID   int
	Node, Pod  string
	Key        string // the content of the Secret
	Scratch    bool   // it may write where it should
	Listen     string
	MayGetKeys bool // by its service account
}

// program answers every datagram with what it sees.
func program(args []string) int {
	fs := flag.NewFlagSet(playPod, flag.ExitOnError)
	kubeconfig, listen := fs.String("kubeconfig", "", ""), fs.String("listen", "", "")
	health, keys, scratch := fs.String("health", "", ""), fs.String("keys", "", ""), fs.String("scratch", "", "")
	node := fs.String("node", "", "")
	_ = fs.Parse(args) // exits by itself
	conn, err := net.ListenPacket("udp", *listen)
	if err != nil {
		return 3
	}
	// Before anybody sees it ready: it is asked to end then.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_ = http.ListenAndServe(*health, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		os.Exit(4)
	}()
	go func() {
		for b := make([]byte, 1500); ; {
			_, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			key, _ := os.ReadFile(filepath.Join(*keys, "key")) // empty tells as much
			s := seen{
				PID: os.Getpid(), UID: os.Getuid(), Node: *node, Pod: os.Getenv("POD"), Key: string(key), Listen: *listen,
				Scratch: os.WriteFile(filepath.Join(*scratch, "f"), nil, 0o600) == nil, MayGetKeys: mayGetKeys(ctx, *kubeconfig),
			}
			reply, _ := json.Marshal(s)      // plain fields
			_, _ = conn.WriteTo(reply, from) // the test asks again
		}
	}()
	<-ctx.Done()
	_, _ = io.WriteString(os.Stdout, "asked to end\n")
	return 0
}

// command does what its first argument says.
func command(args []string) int {
	switch args[0] {
	case "fail":
		_, _ = io.WriteString(os.Stderr, "it failed\n")
		return 3
	case "see": // files
		for _, path := range args[1:] {
			b, err := os.ReadFile(path)
			fmt.Printf("%s %v\n", b, err)
		}
		fmt.Println(os.Getenv("POD"))
	case "cat":
		fmt.Println(0, os.Getpid())
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "wait": // silently, to the end of time
		fmt.Println(0, os.Getpid())
		select {}
	}
	return 0
}

func mayGetKeys(ctx context.Context, kubeconfig string) bool {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return false
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return false
	}
	_, err = c.CoreV1().Secrets("pods").Get(ctx, "keys", metav1.GetOptions{})
	return err == nil
}
