package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/peering"
)

func TestConnectFlags(t *testing.T) {
	const all = "--gw-server-type=a/v1/servers --gw-server-template-name=s --gw-server-template-namespace=sn " +
		"--gw-server-service-type=NodePort --gw-server-service-port=51000 --gw-server-service-nodeport=30742 " +
		"--gw-client-type=a/v1/clients --gw-client-template-name=c --gw-client-template-namespace=cn --gw-client-address=192.0.2.1 --gw-client-port=1 " +
		"--mtu=1400 --disable-sharing-keys --wait --timeout=1s --skip-validation"
	wantAll := peering.Options{
		Timeout: time.Second, UntilTimeout: true, Wait: true, SkipValidation: true, DisableSharingKeys: true, MTU: 1400,
		Server: peering.ServerFlags{Template: peering.TemplateFlags{Type: "a/v1/servers", Name: "s", Namespace: "sn"}, ServiceType: "NodePort", Ports: []int32{51000}, NodePorts: []int32{30742}},
		Client: peering.ClientFlags{Template: peering.TemplateFlags{Type: "a/v1/clients", Name: "c", Namespace: "cn"}, Address: "192.0.2.1", Ports: []int32{1}},
	}
	for _, tt := range []struct {
		name string
		args string
		want peering.Options
		err  string
	}{
		{name: "none", want: peering.Options{Timeout: 2 * time.Minute}},
		{name: "all", args: all, want: wantAll},
		{name: "all, as they were called", args: strings.ReplaceAll(all, "--gw-", "--"), want: wantAll},
		{name: "as they were called before that", args: "--server-service-type nodeport --server-port 51000 --node-port 30742 --timeout 1s",
			want: peering.Options{Timeout: time.Second, UntilTimeout: true, Server: peering.ServerFlags{ServiceType: "NodePort", Ports: []int32{51000}, NodePorts: []int32{30742}}}},
		{name: "an address of the load balancer", args: "--load-balancer-ip 192.0.2.7 --timeout 1s",
			want: peering.Options{Timeout: time.Second, UntilTimeout: true, Server: peering.ServerFlags{LoadBalancerIP: "192.0.2.7"}}},
		{name: "an unknown type", args: "--gw-server-service-type ExternalName", err: `--gw-server-service-type "ExternalName": must be LoadBalancer, NodePort, ClusterIP`},
		{name: "several tunnels", args: "--gw-server-service-port 51840,51841 --gw-server-service-nodeport 30742,30743 --gw-client-port 1,2 --timeout 1s",
			want: peering.Options{Timeout: time.Second, UntilTimeout: true, Server: peering.ServerFlags{Ports: []int32{51840, 51841}, NodePorts: []int32{30742, 30743}}, Client: peering.ClientFlags{Ports: []int32{1, 2}}}},
		{name: "a zero among ports", args: "--gw-server-service-port 51840,51841 --gw-server-service-nodeport 30742,0", err: "--gw-server-service-nodeport 0: must be from 1 to 65535"},
		{name: "zeros", args: "--server-port 0 --gw-client-port 0 --mtu 0 --node-port 0",
			err: "--gw-server-service-port 0: must be from 1 to 65535\n--gw-client-port 0: must be from 1 to 65535\n--mtu 0: must be from 576 to 65455"},
		{name: "an MTU that is too large", args: "--mtu 70000", err: "--mtu 70000: must be from 576 to 65455"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := new(cobra.Command)
			var f connectFlags
			f.add(cmd.Flags(), timeoutOfNetwork, "")
			f.addGateways(cmd)
			if err := cmd.ParseFlags(strings.Fields(tt.args)); err != nil {
				t.Fatal(err)
			}
			got, err := f.options(newApp("liqoctl", nil, new(bytes.Buffer), new(bytes.Buffer)))
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

const remoteMissing = " ERRO   no remote cluster given: name it with --remote-kubeconfig or --remote-context"

// TestNetworkRefuses has commands end before they ask any cluster.
func TestNetworkRefuses(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"network connect --kubeconfig nowhere --mtu 1", "--mtu 1: must be from 576 to 65455"},
		{"network connect rome", `see 'liqoctl network connect --help'`},
		{"network reset --kubeconfig nowhere --skip-confirm --remote-cluster-id Mi.lan", `--remote-cluster-id "Mi.lan" is not the ID of a cluster`},
		// Which clusters it is about is found out before anything is asked, and the remote one is never guessed.
		{"network reset --kubeconfig nowhere --remote-context milan", " ERRO   (local) kubeconfig nowhere cannot be read"},
		{"network disconnect --kubeconfig nowhere --remote-context milan", " ERRO   (local) kubeconfig nowhere cannot be read"},
		{"network init --kubeconfig nowhere", remoteMissing},
		{"network connect --kubeconfig nowhere --remote-context milan --gw-server-service-nodeport=", "kubeconfig nowhere cannot be read"},
		{"network connect --kubeconfig nowhere --gw-server-service-nodeport any", `"any": must be a whole number`},
		{"network connect --kubeconfig nowhere --gw-client-port 30742,any", `"30742,any": must be a whole number, or several separated by commas`},
		{"network connect --kubeconfig nowhere", remoteMissing},
		{"network disconnect --kubeconfig nowhere", remoteMissing},
		{"network reset --kubeconfig nowhere --skip-confirm", remoteMissing},
		{"network connect --kubeconfig nowhere --remote-liqo-namespace liqo --remote-namespace x", remoteMissing},
		{"network status --kubeconfig nowhere --remote-liqo-namespace liqo", remoteMissing},
		{"expose service web --kubeconfig nowhere", " ERRO   no remote cluster given: name the one that is to reach the Service"},
		{"expose service web --kubeconfig nowhere --external-cidr 10.71.0.1/16", `--external-cidr: 10.71.0.1/16 has host bits: use 10.71.0.0/16`},
		{"expose service web --kubeconfig nowhere --remote-context milan --external-cidr 10.71.0.0/16", "--external-cidr: leave it out, as the remote cluster is queried for it"},
		{"peer --kubeconfig nowhere", remoteMissing},
		{"unpeer --kubeconfig nowhere", remoteMissing},
		{"peer --in-band --proxy-url http://10.0.0.1:8118", "--in-band and --proxy-url each name a proxy: use only one of them"},
		{"peer --cpu much", `cpu "much": must be a quantity`},
		{"peer --memory=-1Gi", `memory "-1Gi": must not be less than zero`},
		{"peer --resource cpu=4", "--resource cpu: use --cpu"},
		{"peer --resource not/a/name=4", `--resource "not/a/name": must be the name of a resource`},
		{"peer --create-virtual-node --create-resource-slice=false", "--create-virtual-node: a virtual node has the resources of a ResourceSlice"},
		{"peer --proxy-url 10.0.0.1:8118", `--proxy-url "10.0.0.1:8118": must be the URL of an HTTP proxy`},
		{"force unpeer milan --kubeconfig nowhere", "kubeconfig nowhere cannot be read"},
		{"peer --gw-server-gateway-location Elsewhere", `--gw-server-service-location "Elsewhere": must be Provider or Consumer`},
		{"peer --gw-server-gateway-location Consumer --kubeconfig nowhere --remote-context milan", " ERRO   (local) kubeconfig nowhere cannot be read"}, // on to the clusters
		{"peer --create-virtual-node=false --resource-slice-class default --kubeconfig nowhere --remote-context milan", "nowhere"},                      // on to the clusters
	} {
		t.Run(tt.args, func(t *testing.T) {
			got := liqoctl(t.Context(), strings.Fields(tt.args)...)
			if got.code != 1 || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
				t.Errorf("code %d, stdout %q, stderr %q; want %q in it", got.code, got.stdout, got.stderr, tt.want)
			}
		})
	}
}
