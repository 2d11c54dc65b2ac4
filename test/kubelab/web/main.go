// Command web is what the tests run as pods: an HTTP server that says which pod
// of which node answers, and from which address it was asked.
//
//	GET /        {"pod": ..., "node": ..., "client": ...}
//	GET /bytes?n=N   N bytes
//
// A datagram to the same port is answered as GET / is. With -get URL it asks instead, also udp://HOST:PORT, for kubectl
// exec in an image without a shell. With -api PATH it asks the API server as clients in pods do.
package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Answer is what the server says.
type Answer struct {
	// Pod and Node are the environment's POD_NAME, by default the host name, and
	// NODE_NAME.
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Client is the address that the request came from.
	Client string `json:"client"`
}

func main() {
	addresses := flag.String("listen", ":8080", "addresses to serve at, with commas between them")
	url := flag.String("get", "", "ask this URL and end, instead of serving")
	path := flag.String("api", "", "ask the API server for this path and end, instead of serving")
	flag.Parse()
	var err error
	switch {
	case strings.HasPrefix(*url, "udp://"):
		err = getDatagram(strings.TrimPrefix(*url, "udp://"))
	case *url != "":
		err = get(http.DefaultTransport, "", *url)
	case *path != "":
		err = askAPI(*path)
	default:
		err = serve(*addresses)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve does not return without an error.
func serve(addresses string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", whoAmI)
	mux.HandleFunc("GET /bytes", bytes)
	failed := make(chan error)
	for _, address := range strings.Split(addresses, ",") {
		server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		go func() { failed <- server.ListenAndServe() }()
		datagrams, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		go func() { failed <- answerDatagrams(datagrams) }()
		log.Printf("listens at %s", address)
	}
	return <-failed
}

// answerDatagrams does not return without an error.
func answerDatagrams(c net.PacketConn) error {
	b := make([]byte, 1500)
	for {
		_, from, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		text, err := json.Marshal(answer(from.String()))
		if err != nil {
			return err
		}
		_, _ = c.WriteTo(text, from) // who asks may be gone
	}
}

// getDatagram prints what a server answers to a datagram.
func getDatagram(address string) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 1500)
	if err = c.SetDeadline(time.Now().Add(10 * time.Second)); err == nil {
		_, err = c.Write([]byte("?"))
	}
	n := 0
	if err == nil {
		n, err = c.Read(b)
	}
	fmt.Print(string(b[:n]))
	return err
}

// askAPI asks the API server that the environment names, with the service account of the pod.
func askAPI(path string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return get(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, string(token), "https://"+server+path)
}

// get prints what a server answers.
func get(transport http.RoundTripper, token, url string) error {
	q, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	h := http.Client{Timeout: 10 * time.Second, Transport: transport}
	r, err := h.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, r.Status)
	}
	_, err = io.Copy(os.Stdout, r.Body)
	return err
}

func whoAmI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer(r.RemoteAddr))
}

func answer(from string) Answer {
	host, _ := os.Hostname()
	client, _, _ := net.SplitHostPort(from)
	return Answer{Pod: cmp.Or(os.Getenv("POD_NAME"), host), Node: os.Getenv("NODE_NAME"), Client: client}
}

func bytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil || n < 0 {
		http.Error(w, "how many? /bytes?n=1000", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(w, zeros{}, n)
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
