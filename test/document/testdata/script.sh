#!/bin/bash
# Connects two clusters by hand, in the namespace default: the first one has the server.
set -eu
server=PATH_TO_CLUSTER_1_KUBECONFIG
client=PATH_TO_CLUSTER_2_KUBECONFIG

field() { kubectl --kubeconfig "$1" get "$2" "$3" -o json | jq -r "$4"; }

# What each is to know of the other.
liqoctl --kubeconfig "$client" generate configuration | kubectl --kubeconfig "$server" apply -f -
liqoctl --kubeconfig "$server" generate configuration | kubectl --kubeconfig "$client" apply -f -
server_id=$(liqoctl --kubeconfig "$server" info --get clusterid)
client_id=$(liqoctl --kubeconfig "$client" info --get clusterid)
kubectl --kubeconfig "$server" wait --for=jsonpath='{.status.remote.cidr.pod}' configurations "$client_id" --timeout=300s
kubectl --kubeconfig "$client" wait --for=jsonpath='{.status.remote.cidr.pod}' configurations "$server_id" --timeout=300s

# The gateways.
liqoctl --kubeconfig "$server" create gatewayserver server --remote-cluster-id "$client_id" --service-type NodePort
kubectl --kubeconfig "$server" wait --for=jsonpath='{.status.endpoint.port}' gatewayserver server --timeout=300s
ADDRESS_SERVER=$(field "$server" gatewayserver server '.status.endpoint.addresses[0]')
PORT_SERVER=$(field "$server" gatewayserver server .status.endpoint.port)
liqoctl --kubeconfig "$client" create gatewayclient client --remote-cluster-id "$server_id" --addresses "$ADDRESS_SERVER" --port "$PORT_SERVER"
kubectl --kubeconfig "$client" wait --for=jsonpath='{.status.internalEndpoint.ip}' gatewayclient client --timeout=300s

# Their keys.
liqoctl --kubeconfig "$server" generate publickey --gateway-type server --gateway-name server | kubectl --kubeconfig "$client" apply -f -
liqoctl --kubeconfig "$client" generate publickey --gateway-type client --gateway-name client | kubectl --kubeconfig "$server" apply -f -
