{{- /* What all pods have: no privileges, and a say of where they run. */}}

{{- define "heliograph.pod.security" -}}
runAsNonRoot: true
{{- with .Values.pods }}
{{- if not (kindIs "invalid" .user) }}
runAsUser: {{ .user | int64 }}
{{- end }}
{{- if not (kindIs "invalid" .group) }}
runAsGroup: {{ .group | int64 }}
fsGroup: {{ .group | int64 }}
{{- end }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "heliograph.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Where they run: (list $ "translator" VALUES) */}}
{{- define "heliograph.pod.placement" -}}
{{- $root := index . 0 }}{{ $component := index . 1 }}
{{- with index . 2 }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $keys := dict "hostname" "kubernetes.io/hostname" "zone" "topology.kubernetes.io/zone" }}
{{- $spread := dict }}
{{- range $name, $how := .topologySpread }}{{ if ne $how "None" }}{{ $_ := set $spread $name $how }}{{ end }}{{ end }}
{{- with $spread }}
topologySpreadConstraints:
  {{- range $name, $how := . }}
  - maxSkew: 1
    topologyKey: {{ get $keys $name }}
    whenUnsatisfiable: {{ $how }}
    labelSelector:
      matchLabels:
        {{- include "heliograph.selector" (list $root $component) | nindent 8 }}
    # Nodes that take no pods, such as those of a zone that is lost, are not waited for.
    nodeTaintsPolicy: Honor
    # Of a rolling update each half by itself.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The labels of pods: (list $ "translator"). Without versions, so that another chart alone restarts nothing. */}}
{{- define "heliograph.pod.labels" -}}
{{- include "heliograph.selector" . }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with (index (index . 0).Values (index . 1)).podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of the two programs, which both have an admin port. */}}
{{- define "heliograph.probes" -}}
readinessProbe: {httpGet: {path: /readyz, port: admin}, periodSeconds: 2}
livenessProbe: {httpGet: {path: /livez, port: admin}, periodSeconds: 10, failureThreshold: 6}
{{- end }}

{{- define "heliograph.logging" -}}
- --log-level={{ .Values.logging.level }}
- --log-format={{ .Values.logging.format }}
{{- end }}

{{- /* Up at once, down slowly. */}}
{{- define "heliograph.scaling" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  policies: [{type: Percent, value: 100, periodSeconds: 30}, {type: Pods, value: 2, periodSeconds: 30}]
  selectPolicy: Max
scaleDown:
  stabilizationWindowSeconds: {{ .waitSeconds | int64 }}
  policies: [{type: Pods, value: 1, periodSeconds: {{ .periodSeconds | int64 }}}]
{{- end }}

{{- /* Who may reach an admin port, as rules of a NetworkPolicy. */}}
{{- define "heliograph.network.admin" -}}
{{- with .Values.networkPolicy.metricsFrom }}
- ports: [{port: 19000}]
  from:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /*
The flags for how much clients may ask of a distributor. A program takes a flag once and before the environment, so what extraArgs
and extraEnv say is left to them; what is null is left to the program.
*/}}
{{- define "heliograph.distributor.limits" }}
{{- $own := .own }}
{{- $limits := $own.limits }}
{{- $counts := dict
  "max-connections" $limits.connections
  "max-streams" $limits.streams
  "max-connections-per-address" $limits.connectionsPerAddress
  "max-unauthenticated" $limits.unauthenticatedConnections
  "max-identity-share" $limits.identityShare
  "max-namespace-share" $limits.namespaceShare
  "admission-rate" $limits.admissionRate
  "request-rate" $limits.requestRate }}
{{- $flags := dict
  "subscription-memory" $limits.subscriptionMemory
  "subscription-memory-per-identity" $limits.subscriptionMemoryPerIdentity
  "unpublished-timeout" $limits.unpublishedTimeout
  "fleet-memory" $limits.fleetMemory }}
{{- if .review }}
{{- $_ := set $counts "xds-token-review-rate" $limits.tokenReviewRate }}
{{- end }}
{{- range $flag, $count := $counts }}
{{- if not (kindIs "invalid" $count) }}
{{- $_ := set $flags $flag ($count | int64) }}
{{- end }}
{{- end }}
{{- range $own.extraArgs }}
{{- $_ := unset $flags (. | trimPrefix "--" | splitList "=" | first) }}
{{- end }}
{{- range $own.extraEnv }}
{{- $_ := unset $flags (.name | trimPrefix "HELIO_" | lower | replace "_" "-") }}
{{- end }}
{{- range $flag, $value := $flags }}
{{- if not (kindIs "invalid" $value) }}
- --{{ $flag }}={{ $value }}
{{- end }}
{{- end }}
{{- end }}
