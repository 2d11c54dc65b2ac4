package gatewaydeploy

import "strings"

// deployment is what the two kinds have in common: a gateway as the templates of the
// installation render it, as far as the controllers care.
const deployment = `
  deployment:
    metadata:
      labels: {team: network}
    spec:
      replicas: 1
      strategy: {type: Recreate}
      selector:
        matchLabels: {networking.liqo.io/component: gateway, networking.liqo.io/gateway-name: NAME}
      template:
        metadata:
          labels:
            app.kubernetes.io/name: NAME
            networking.liqo.io/component: gateway
            networking.liqo.io/gateway-name: NAME
            networking.liqo.io/gateway-namespace: NS
            networking.liqo.io/active: "true"
        spec:
          serviceAccountName: NAME
          securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
          containers:
          - name: gateway
            image: sluice.local/gateway:unknown
            args: [--name=NAME, --namespace=NS]
            securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
            volumeMounts:
            - {name: wireguard-config, mountPath: /etc/wireguard/keys}
          volumes:
          - name: wireguard-config
            secret: {secretName: gw-NAME, defaultMode: 288}
`

const serverYAML = `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServer
metadata:
  name: server
  namespace: NS
  labels: {liqo.io/remote-cluster-id: peer}
spec:
  service:
    metadata:
      annotations: {cloud.example/kind: internal}
    spec:
      type: NodePort
      selector: {networking.liqo.io/component: gateway, networking.liqo.io/gateway-name: server, networking.liqo.io/active: "true"}
      ports:
      - {name: wireguard, protocol: UDP, port: 51840, targetPort: 51840}
` + deployment

const clientYAML = `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayClient
metadata:
  name: client
  namespace: NS
  labels: {liqo.io/remote-cluster-id: peer}
spec:
` + deployment

var (
	serverManifest = strings.ReplaceAll(serverYAML, "NAME", "server")
	clientManifest = strings.ReplaceAll(clientYAML, "NAME", "client")
)

// publicKeyManifest is the peer's key: RFC 7748, section 6.1, Bob's.
const publicKeyManifest = `
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  name: peer
  namespace: NS
  labels: {liqo.io/remote-cluster-id: peer, networking.liqo.io/gateway-resource: "true"}
spec:
  publicKey: ` + bobPublic + "\n"

// secretManifest is a user's Secret named mine, without labels.
const secretManifest = `
apiVersion: v1
kind: Secret
metadata: {name: mine, namespace: NS}
type: Opaque
data:
  privateKey: ` + alicePrivate + "\n"
