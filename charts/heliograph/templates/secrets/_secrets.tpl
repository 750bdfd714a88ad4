{{- /* What is to be made for this installation, as flags of `helio secrets`. Empty if all of it is brought along. */}}
{{- define "heliograph.secrets.args" -}}
{{- if not .Values.keyRing.secret }}
- --key-ring={{ include "heliograph.keyRing" . }}
{{- end }}
{{- if not .Values.redis.url }}
- --redis={{ include "heliograph.part" (list . "redis") }}
{{- end }}
{{- if eq .Values.certificates.source "generated" }}
- --certificate={{ include "heliograph.certificate" . }}
- --authority={{ include "heliograph.authority" . }}
- --server-name={{ include "heliograph.xds.host" . }}
{{- range .Values.certificates.extraNames }}
- --server-name={{ . }}
{{- end }}
- --certificate-life={{ mul .Values.certificates.generated.lifeDays 24 }}h
- --authority-life={{ mul .Values.certificates.generated.authorityLifeDays 24 }}h
{{- end }}
{{- end }}

{{- /* The Job that makes them, now and by the clock. */}}
{{- define "heliograph.secrets.job" -}}
{{- $own := .Values.secrets -}}
backoffLimit: 6
template:
  metadata:
    labels:
      {{- include "heliograph.pod.labels" (list . "secrets") | nindent 6 }}
  spec:
    serviceAccountName: {{ include "heliograph.account" (list . "secrets") }}
    restartPolicy: Never
    enableServiceLinks: false
    {{- with .Values.image.pullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "heliograph.pod.security" . | nindent 6 }}
    {{- with include "heliograph.pod.placement" (list . "secrets" $own) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    containers:
      - name: helio
        image: {{ include "heliograph.image" (list . "secrets" "helio") }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
          - secrets
          - --namespace={{ .Release.Namespace }}
          {{- include "heliograph.secrets.args" . | trim | nindent 10 }}
          {{- include "heliograph.logging" . | nindent 10 }}
        resources:
          {{- toYaml $own.resources | nindent 10 }}
        securityContext:
          {{- include "heliograph.container.security" . | nindent 10 }}
{{- end }}
