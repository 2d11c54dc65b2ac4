package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// topology prints who is where.
func (d *demo) topology() {
	a, b := d.clusters[0], d.clusters[1]
	fmt.Printf(`Sluice: two clusters that use the same pod CIDR talk pod to pod.

  cluster a: pods %-15v                                            cluster b: pods %v
  node-a1 %-11v══ Geneve ══╗                                         ╔══ Geneve ══ node-b1 %v
                                 ╠══ gateway a ── WireGuard ── gateway b ══╣
  node-a2 %-11v══ VXLAN ═══╝   %-15v     %15v   ╚══ VXLAN ═══ node-b2 %v

  In cluster a the pods of b are %v; in cluster b the pods of a are %v.
  Files and logs: %s

`,
		dataplanetest.PodCIDR, dataplanetest.PodCIDR,
		d.loopback(0, 11), d.loopback(1, 11), d.loopback(0, 12), a.gatewayAddr, b.gatewayAddr, d.loopback(1, 12),
		a.remapped, b.remapped, d.dir)
}

// far is how cluster a addresses the first pod of cluster b.
func (d *demo) far() netip.Addr {
	return dataplanetest.Through(d.clusters[0].remapped, d.clusters[1].podAddrs[0])
}

func (d *demo) ping(ctx context.Context) (string, error) {
	pod, c := d.clusters[0].pods[0], d.clusters[0]
	var out strings.Builder
	for range 3 {
		rtt, err := pod.Ping(ctx, d.far(), 56, false)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s -> %s: %s\n", c.podAddrs[0], d.far(), rtt.Round(time.Microsecond))
	}
	const headers = 28
	if _, err := pod.Ping(ctx, d.far(), mtu-headers, true); err != nil {
		return "", fmt.Errorf("a packet of exactly the MTU: %w", err)
	}
	fmt.Fprintf(&out, "a packet of exactly the MTU, %d bytes, passes with Don't Fragment\n", mtu)
	return out.String(), nil
}

func (d *demo) trace(ctx context.Context) (string, error) {
	who := []string{"node-a1", "gateway a", "gateway b, by its external CIDR", "the pod"}
	hops, err := d.clusters[0].pods[0].Trace(ctx, d.far(), 8)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i, h := range hops {
		name := ""
		if i < len(who) {
			name = who[i]
		}
		fmt.Fprintf(&out, "%d  %-12s %8s  %s\n", h.TTL, h.Addr, h.RTT.Round(time.Microsecond), name)
	}
	if len(hops) == 0 || !hops[len(hops)-1].Reached {
		return "", fmt.Errorf("the pod was not reached:\n%s", out.String())
	}
	return out.String(), nil
}

func (d *demo) fetch(ctx context.Context) (string, error) {
	server := d.clusters[1]
	l, err := server.pods[0].ListenTCP(netip.AddrPortFrom(server.podAddrs[0], 80))
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s, this is %s of cluster b", r.RemoteAddr, server.podAddrs[0])
	})}
	go s.Serve(l)
	defer s.Close()
	client := http.Client{Transport: &http.Transport{DialContext: d.clusters[0].pods[1].DialContext, DisableKeepAlives: true}}
	url := "http://" + d.far().String() + "/"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return fmt.Sprintf("pod %s on node-a2: GET %s\n%s\n", d.clusters[0].podAddrs[1], url, body), err
}

// transfer sends size random bytes each way and compares what arrives.
func (d *demo) transfer(ctx context.Context, size int64) (string, error) {
	a, b := d.clusters[0], d.clusters[1]
	var out strings.Builder
	for _, dir := range []struct {
		what             string
		client, server   *netstack.Stack
		listen, dialAddr netip.Addr
	}{
		{"a -> b", a.pods[0], b.pods[0], b.podAddrs[0], dataplanetest.Through(a.remapped, b.podAddrs[0])},
		{"b -> a", b.pods[1], a.pods[1], a.podAddrs[1], dataplanetest.Through(b.remapped, a.podAddrs[1])},
	} {
		start := time.Now()
		sum, err := copyBetween(ctx, dir.client, dir.server, netip.AddrPortFrom(dir.listen, 5001), netip.AddrPortFrom(dir.dialAddr, 5001), size)
		if err != nil {
			return "", fmt.Errorf("%s: %w", dir.what, err)
		}
		took := time.Since(start)
		fmt.Fprintf(&out, "%s: %.2f Gbit/s, SHA-256 %x... at both ends\n", dir.what, float64(size)*8/1e9/took.Seconds(), sum[:8])
	}
	out.WriteString("(the pods' TCP runs in this process too: no measure of the gateways; see bench/README.md)\n")
	return out.String(), nil
}

// copyBetween moves size random bytes from client to server and returns their
// hash, which both ends computed.
func copyBetween(ctx context.Context, client, server *netstack.Stack, listen, dial netip.AddrPort, size int64) (sum [32]byte, err error) {
	l, err := server.ListenTCP(listen)
	if err != nil {
		return sum, err
	}
	defer l.Close()
	type result struct {
		sum [32]byte
		n   int64
		err error
	}
	received := make(chan result, 1)
	go func() {
		var r result
		var conn net.Conn
		if conn, r.err = l.Accept(); r.err == nil {
			h := sha256.New()
			r.n, r.err = io.Copy(h, conn)
			r.sum = [32]byte(h.Sum(nil))
			conn.Close()
		}
		received <- r
	}()
	conn, err := client.DialContext(ctx, "tcp", dial.String())
	if err != nil {
		return sum, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(conn, h), io.LimitReader(rand.Reader, size), make([]byte, 256<<10)); err != nil {
		return sum, err
	}
	conn.Close()
	select {
	case r := <-received:
		if sum = [32]byte(h.Sum(nil)); r.err == nil && (r.n != size || r.sum != sum) {
			r.err = fmt.Errorf("%d bytes arrived with SHA-256 %x, want %d with %x", r.n, r.sum, size, sum)
		}
		return sum, r.err
	case <-ctx.Done():
		return sum, ctx.Err()
	}
}

// counters shows `gateway status` of both sides.
func (d *demo) counters(ctx context.Context) (string, error) {
	var out strings.Builder
	for _, c := range d.clusters {
		b, err := exec.CommandContext(ctx, d.gateway, "status", "--admin-socket", d.socket(c)).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("gateway status of cluster %s: %w\n%s", c.name, err, b)
		}
		fmt.Fprintf(&out, "--- gateway %s\n%s", c.name, b)
	}
	return out.String(), nil
}

// lookAround says what there is to explore, or how to get it.
func (d *demo) lookAround(keep bool) {
	if !keep {
		fmt.Println("\nEverything is stopped and removed. `make demo KEEP=1` leaves it running to look around.")
		return
	}
	fmt.Println("\nStill running; Ctrl-C ends it. To look around:")
	for _, c := range d.clusters {
		fmt.Printf("\n  %s status --admin-socket %s\n  curl -s http://%s/metrics | grep -E '^(liqo|sluice)_'\n  cat %s/status/connection.yaml\n",
			d.gateway, d.socket(c), c.metrics(), d.manifestsDir(c))
	}
	fmt.Printf("\n  Edit a file in %s: the gateway applies it within a second, or says what is wrong in %s\n",
		d.manifestsDir(d.clusters[0]), d.logFile(d.clusters[0]))
}

// explain returns the end of the gateways' logs, for a step that failed.
func (d *demo) explain() error {
	var errs []error
	for _, c := range d.clusters {
		const tail = 4 << 10
		b, err := os.ReadFile(d.logFile(c))
		if err != nil {
			continue
		}
		errs = append(errs, fmt.Errorf("log of gateway %s:\n%s", c.name, b[max(0, len(b)-tail):]))
	}
	return errors.Join(errs...)
}

func httpOK(url string) error {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	var out bytes.Buffer
	for line := range strings.Lines(s) {
		out.WriteString("        " + line)
	}
	return out.String()
}
