package netstack_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/netstack"
)

// Two stacks that are each other's network: a web server and its client.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, client := pod("10.243.0.1"), pod("10.243.0.2")
	defer server.Close()
	defer client.Close()
	go server.Run(ctx, func(pkt []byte) { client.Inject(pkt) })
	go client.Run(ctx, func(pkt []byte) { server.Inject(pkt) })

	l, err := server.ListenTCP(netip.MustParseAddrPort("10.243.0.1:80"))
	if err != nil {
		fmt.Println(err)
		return
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello", r.RemoteAddr[:10])
	}))
	web := &http.Client{Transport: &http.Transport{DialContext: client.DialContext, DisableKeepAlives: true}}
	resp, err := web.Get("http://10.243.0.1/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Print(string(body))
	// Output: hello 10.243.0.2
}

func pod(addr string) *netstack.Stack {
	s, err := netstack.New(netstack.Config{MTU: 1340})
	if err != nil {
		panic(err)
	}
	if err := s.SetAddresses([]netip.Addr{netip.MustParseAddr(addr)}); err != nil {
		panic(err)
	}
	return s
}
