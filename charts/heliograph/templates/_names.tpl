{{- /* What things are called, and the labels that they have. */}}

{{- define "heliograph.name" -}}
{{- $release := ternary .Release.Name (printf "%s-heliograph" .Release.Name) (contains "heliograph" .Release.Name) -}}
{{- /* With room for what follows in the names of Services, which have 63 characters. */ -}}
{{- .Values.fullnameOverride | default $release | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* A part of the system: (list $ "distributor") */}}
{{- define "heliograph.part" -}}
{{- printf "%s-%s" (include "heliograph.name" (index . 0)) (index . 1) -}}
{{- end }}

{{- /* Of pods, by which they are found. Not to be changed: a Deployment cannot be given others. */}}
{{- define "heliograph.selector" -}}
app.kubernetes.io/name: heliograph
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "heliograph.labels" -}}
{{ include "heliograph.selector" . }}
{{- with index . 0 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* name, namespace and labels of an object: (list $ "distributor") or, where the name is another, (list $ "distributor" "name") */}}
{{- define "heliograph.metadata" -}}
name: {{ if gt (len .) 2 }}{{ index . 2 }}{{ else }}{{ include "heliograph.part" . }}{{ end }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "heliograph.labels" . | nindent 2 }}
{{- end }}

{{- define "heliograph.account" -}}
{{- (index (index . 0).Values (index . 1)).serviceAccount.name | default (include "heliograph.part" .) -}}
{{- end }}

{{- /* The image of a program: (list $ "translator" "translator"), with the name of its values and of the program */}}
{{- define "heliograph.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- (index (index . 0).Values (index . 1)).image | default (printf "%s/%s:%s" $image.registry (index . 2) ($image.tag | default (index . 0).Chart.AppVersion)) -}}
{{- end }}

{{- /* Where Envoys find the distributors. The certificate is for the name. */}}
{{- define "heliograph.xds.host" -}}
{{- printf "%s.%s.svc" (include "heliograph.part" (list . "distributor")) .Release.Namespace -}}
{{- end }}

{{- /* The names of Secrets */}}
{{- define "heliograph.keyRing" -}}
{{- .Values.keyRing.secret | default (include "heliograph.part" (list . "keys")) -}}
{{- end }}

{{- define "heliograph.certificate" -}}
{{- if eq .Values.certificates.source "existing" -}}
{{- required "certificates.existing.secret: name the Secret with tls.crt, tls.key and ca.crt" .Values.certificates.existing.secret -}}
{{- else -}}
{{- include "heliograph.part" (list . "xds") -}}
{{- end -}}
{{- end }}

{{- define "heliograph.authority" -}}
{{- include "heliograph.part" (list . "xds-authority") -}}
{{- end }}
