{{/* Where the node agents run: they need a namespace that admits what no other pod here may have. */}}
{{- define "sluice.fabricNamespace" -}}
{{ .Release.Namespace }}-fabric
{{- end }}

{{/* The namespaces of Kubernetes itself, in an expression. */}}
{{- define "sluice.systemNamespaces" -}}
'kube-system', 'kube-public', 'kube-node-lease'
{{- end }}

{{/* Whether a namespace is as the controller makes one for imported Services, in an expression with variables.labels. */}}
{{- define "sluice.importedNamespace" -}}
'liqo.io/imported-from' in variables.labels && variables.labels.all(l, l in ['liqo.io/imported-from', 'kubernetes.io/metadata.name'])
{{- end }}

{{/* The roles that all gateways get. Liqo has one of the usual name. */}}
{{- define "sluice.gatewayRole" -}}
{{ ternary "sluice-gateway" "liqo-gateway" .Values.adoption.enabled }}
{{- end }}

{{/* The version of the programs. */}}
{{- define "sluice.version" -}}
{{ .Values.tag | default .Chart.AppVersion }}
{{- end }}

{{/* An image. Of a dict: root, program, image (name, version). */}}
{{- define "sluice.image" -}}
{{ .image.name | default (printf "%s/%s" .root.Values.registry .program) }}:{{ .image.version | default (include "sluice.version" .root) }}
{{- end }}

{{/* Labels and annotations of an object, below its name. Of a dict: root, and labels and annotations of the object itself.
     liqo.io/managed is left out: by it the controllers know what they have made. */}}
{{- define "sluice.meta" -}}
{{- $global := .root.Values.common }}
{{- with merge (dict) (.labels | default dict) (omit $global.globalLabels "liqo.io/managed") }}
  labels:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- with merge (dict) (.annotations | default dict) $global.globalAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The labels of a program. Of a dict: name, component. */}}
{{- define "sluice.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: liqo
{{- end }}

{{/* CIDRs, or the one, with commas. Of a dict: many, one. */}}
{{- define "sluice.cidrs" -}}
{{ .many | default (list .one) | compact | join "," }}
{{- end }}

{{/* Keeps replicas apart where there are several and nothing else is wanted. Of a dict: affinity, replicas, labels. */}}
{{- define "sluice.affinity" -}}
{{- if .affinity }}
affinity:
  {{- toYaml .affinity | nindent 2 }}
{{- else if gt (int .replicas) 1 }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- toYaml .labels | nindent 12 }}
{{- end }}
{{- end }}

{{/* Tolerations, and of a node that is gone for a short time only, unless they say otherwise. */}}
{{- define "sluice.tolerations" -}}
{{- with . }}
{{- toYaml . }}
{{- end }}
{{- $tolerations := . }}
# It is needed elsewhere soon after its node is gone: by default pods wait for five minutes.
{{- range $key := list "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" }}
{{- $said := false }}
{{- range $tolerations }}{{ if eq (.key | default "") $key }}{{ $said = true }}{{ end }}{{ end }}
{{- if not $said }}
- key: {{ $key }}
  operator: Exists
  effect: NoExecute
  tolerationSeconds: 10
{{- end }}
{{- end }}
{{- end }}

{{/* Who a pod without privileges runs as. On OpenShift the namespace says it. */}}
{{- define "sluice.user" -}}
runAsNonRoot: true
{{- if not .Values.openshiftConfig.enabled }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
{{- end }}

{{/* What the pods of the node agents and of what cleans up after them have in common. */}}
{{- define "sluice.fabricPod" }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # The network that it changes is the node's.
      hostNetwork: true
      dnsPolicy: Default
      enableServiceLinks: false
      # It ends within two seconds.
      terminationGracePeriodSeconds: 10
      tolerations:
      - operator: Exists
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: kubernetes.io/os, operator: In, values: [linux]}
              # Such a node stands for a remote cluster.
              - {key: liqo.io/type, operator: NotIn, values: [virtual-node]}
      securityContext:
        # A capability in a pod is in force for root only, unless the program's file has it, too. Of root's power nothing
        # is left but this one.
        runAsUser: 0
        runAsGroup: 0
        seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* And their containers. */}}
{{- define "sluice.fabricContainer" }}
        securityContext:
          privileged: false
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
            add: [NET_ADMIN]
{{- end }}

{{- /* The roles of a file, which is generated from the markers beside the controllers' code, for the namespace liqo. */ -}}
{{- define "sluice.roles" -}}
{{- $root := .root -}}
{{- range $document := $root.Files.Get .file | splitList "---\n" }}
{{- with fromYaml $document }}
---
{{- if .metadata.namespace }}{{ $_ := set .metadata "namespace" $root.Release.Namespace }}{{ end }}
{{- $_ := set . "metadata" (merge .metadata (fromYaml (include "sluice.meta" (dict "root" $root)))) }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The labels of the cluster, separated by commas. toJson writes a number as the user does: 1000000, not 1e+06. */}}
{{- define "sluice.clusterLabels" -}}
{{- $labels := list }}
{{- range $key, $value := .Values.discovery.config.clusterLabels }}
{{- $labels = append $labels (printf "%s=%s" $key ($value | toJson | trimAll "\"")) }}
{{- end }}
{{- join "," $labels }}
{{- end }}

{{- /* Names of classes, separated by commas, as the controller takes them: the default one has ;default behind it. */}}
{{- define "sluice.classes" -}}
{{- $names := list }}
{{- range . }}
{{- $names = append $names (printf "%s%s" .name (ternary ";default" "" (.default | default false))) }}
{{- end }}
{{- join "," $names }}
{{- end }}
