{{/* What both ends of a tunnel have in common: Deployment and metrics. Of a dict: root, mode (server or client). */}}
{{- define "sluice.gateway" }}
{{- $values := .root.Values }}
{{- $t := $values.networking.gatewayTemplates }}
{{- $name := "{{ .Name }}" }}
{{- $namespace := "{{ .Namespace }}" }}
{{- $selector := dict "networking.liqo.io/component" "gateway" "networking.liqo.io/gateway-name" $name "networking.liqo.io/gateway-namespace" $namespace }}
      deployment:
        spec:
          replicas: {{ $t.replicas }}
          strategy:
            # A new pod stands by before an old one ends: no change of the template interrupts the traffic, and one that
            # cannot start changes nothing.
            type: RollingUpdate
            rollingUpdate:
              maxSurge: 1
              maxUnavailable: 0
          selector:
            matchLabels:
              networking.liqo.io/component: gateway
              networking.liqo.io/gateway-name: "{{ $name }}"
              networking.liqo.io/gateway-namespace: "{{ $namespace }}"
          template:
            metadata:
              labels:
                app.kubernetes.io/name: "{{ $name }}"
                app.kubernetes.io/instance: "liqo-{{ $name }}"
                app.kubernetes.io/component: networking
                app.kubernetes.io/part-of: liqo
                app.kubernetes.io/managed-by: liqo-controller
                liqo.io/remote-cluster-id: "{{ "{{ .ClusterID }}" }}"
                networking.liqo.io/component: gateway
                networking.liqo.io/gateway-name: "{{ $name }}"
                networking.liqo.io/gateway-namespace: "{{ $namespace }}"
                {{- with merge (dict) $t.pod.labels (omit $values.common.globalLabels "liqo.io/managed") }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
              {{- with merge (dict) $t.pod.annotations $values.common.globalAnnotations }}
              annotations:
                {{- toYaml . | nindent 16 }}
              {{- end }}
            spec:
              serviceAccountName: "{{ $name }}"
              {{- with $values.imagePullSecrets }}
              imagePullSecrets:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              enableServiceLinks: false
              # Of which it uses 20 at most, to wait until another one forwards.
              terminationGracePeriodSeconds: 30
              {{- with $t.pod.priorityClassName }}
              priorityClassName: {{ . }}
              {{- end }}
              {{- with merge (dict) $t.pod.nodeSelector $values.common.nodeSelector }}
              nodeSelector:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              tolerations:
                {{- include "sluice.tolerations" (concat $t.pod.tolerations $values.common.tolerations) | trim | nindent 16 }}
              {{- with include "sluice.affinity" (dict "affinity" ($t.pod.affinity | default $values.common.affinity) "replicas" $t.replicas "labels" $selector) }}
              {{- . | trim | nindent 14 }}
              {{- end }}
              securityContext:
                {{- include "sluice.user" .root | nindent 16 }}
                {{- if not $values.openshiftConfig.enabled }}
                # Reads the mounted keys.
                fsGroup: 65532
                {{- end }}
                seccompProfile:
                  type: RuntimeDefault
              containers:
              - name: gateway
                image: {{ include "sluice.image" (dict "root" .root "program" "gateway" "image" $t.container.gateway.image) }}
                imagePullPolicy: {{ $values.pullPolicy }}
                args:
                - --name={{ $name }}
                - --namespace={{ $namespace }}
                - --remote-cluster-id={{ "{{ .ClusterID }}" }}
                - --gateway-uid={{ "{{ .GatewayUID }}" }}
                - --mode={{ .mode }}
                - --node-name=$(NODE_NAME)
                - --pod-name=$(POD_NAME)
                - --keys-dir=/etc/wireguard/keys
                - --admin-socket=/run/sluice/gateway.sock
                - --cache-dir=/run/sluice
                - --metrics-address=:8082
                - --health-probe-address=:8083
                {{- if ne .root.Release.Namespace "liqo" }}
                - --liqo-namespace={{ .root.Release.Namespace }}
                {{- end }}
                - --leader-election
                {{- if $values.services.enabled }}
                - --services
                {{- end }}
                {{- if ne (int $values.networking.genevePort) 6091 }}
                - --geneve-port={{ $values.networking.genevePort }}
                {{- end }}
                {{- with $t.ping }}
                {{- if ne (int .lossThreshold) 5 }}
                - --ping-loss-threshold={{ .lossThreshold }}
                {{- end }}
                {{- if ne .interval "2s" }}
                - --ping-interval={{ .interval }}
                {{- end }}
                {{- if ne .updateStatusInterval "10s" }}
                - --ping-update-status-interval={{ .updateStatusInterval }}
                {{- end }}
                {{- end }}
                {{- with concat $values.common.extraArgs $t.pod.extraArgs }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
                env:
                - name: NODE_NAME
                  valueFrom:
                    fieldRef:
                      fieldPath: spec.nodeName
                - name: POD_NAME
                  valueFrom:
                    fieldRef:
                      fieldPath: metadata.name
                ports:
                {{- if eq .mode "server" }}
                - name: wireguard
                  containerPort: "{{ "{{ .Spec.Endpoint.Port }}" }}"
                  protocol: UDP
                {{- end }}
                - name: geneve
                  containerPort: {{ $values.networking.genevePort }}
                  protocol: UDP
                - name: gw-metrics
                  containerPort: 8082
                  protocol: TCP
                - name: healthz
                  containerPort: 8083
                  protocol: TCP
                readinessProbe:
                  httpGet:
                    path: /readyz
                    port: healthz
                  periodSeconds: 2
                livenessProbe:
                  httpGet:
                    path: /healthz
                    port: healthz
                resources:
                  {{- toYaml $t.container.gateway.resources | nindent 18 }}
                securityContext:
                  allowPrivilegeEscalation: false
                  readOnlyRootFilesystem: true
                  capabilities:
                    drop: [ALL]
                volumeMounts:
                - name: wireguard-config
                  mountPath: /etc/wireguard/keys
                  readOnly: true
                - name: run
                  mountPath: /run/sluice
              volumes:
              # The controllers put in the Secret that holds the gateway's keys.
              - name: wireguard-config
                secret:
                  secretName: "gw-{{ $name }}"
                  defaultMode: 288 # 0440
              # The socket, and the objects, no Secrets, for a container that starts while the API server is away.
              - name: run
                emptyDir: {}
      metrics:
        enabled: {{ $values.metrics.enabled }}
        {{- if $values.metrics.enabled }}
        service:
          spec:
            clusterIP: None # each replica is scraped
            selector:
              networking.liqo.io/component: gateway
              networking.liqo.io/gateway-name: "{{ $name }}"
              networking.liqo.io/gateway-namespace: "{{ $namespace }}"
            ports:
            - name: gw-metrics
              port: 8082
              targetPort: gw-metrics
              protocol: TCP
        {{- end }}
{{- end }}
