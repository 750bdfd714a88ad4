{{- /* How both programs reach Redis: flags, and the files that they name. */}}

{{- /* The Secret with the credentials of a program: (list $ "translator"). Empty if there is none. */}}
{{- define "heliograph.redis.secret" -}}
{{- $redis := (index . 0).Values.redis -}}
{{- if not $redis.url -}}
{{- include "heliograph.part" (list (index . 0) "redis") -}}
{{- else -}}
{{- index $redis (printf "%sSecret" (index . 1)) | default $redis.auth.secret -}}
{{- end -}}
{{- end }}

{{- define "heliograph.store.args" -}}
{{- $root := index . 0 }}
{{- $redis := $root.Values.redis }}
{{- $own := printf "redis://%s:6379" (include "heliograph.part" (list $root "redis")) -}}
- --store={{ $redis.url | default $own }}
- --store-keys=/etc/heliograph/keys/keys.yaml
- --store-prefix={{ $redis.prefix }}
- --store-history={{ $redis.history | int64 }}
{{- if include "heliograph.redis.secret" . }}
{{- if and $redis.url $redis.auth.usernameKey }}
- --store-username-file=/etc/heliograph/redis/username
{{- end }}
- --store-password-file=/etc/heliograph/redis/password
{{- end }}
{{- if and $redis.url $redis.sentinelAuth.secret }}
{{- if $redis.sentinelAuth.usernameKey }}
- --store-sentinel-username-file=/etc/heliograph/sentinel/username
{{- end }}
- --store-sentinel-password-file=/etc/heliograph/sentinel/password
{{- end }}
{{- if and $redis.url $redis.tls.caSecret }}
- --store-ca=/etc/heliograph/redis-ca/ca.crt
{{- end }}
{{- if and $redis.url $redis.tls.certificateSecret }}
- --store-cert=/etc/heliograph/redis-certificate/tls.crt
- --store-key=/etc/heliograph/redis-certificate/tls.key
{{- end }}
{{- end }}

{{- define "heliograph.store.mounts" -}}
{{- $redis := (index . 0).Values.redis -}}
- {name: keys, mountPath: /etc/heliograph/keys, readOnly: true}
{{- if include "heliograph.redis.secret" . }}
- {name: redis, mountPath: /etc/heliograph/redis, readOnly: true}
{{- end }}
{{- if and $redis.url $redis.sentinelAuth.secret }}
- {name: sentinel, mountPath: /etc/heliograph/sentinel, readOnly: true}
{{- end }}
{{- if and $redis.url $redis.tls.caSecret }}
- {name: redis-ca, mountPath: /etc/heliograph/redis-ca, readOnly: true}
{{- end }}
{{- if and $redis.url $redis.tls.certificateSecret }}
- {name: redis-certificate, mountPath: /etc/heliograph/redis-certificate, readOnly: true}
{{- end }}
{{- end }}

{{- define "heliograph.store.volumes" -}}
{{- $root := index . 0 }}
{{- $redis := $root.Values.redis -}}
- name: keys
  secret: {secretName: {{ include "heliograph.keyRing" $root }}, defaultMode: 0440}
{{- with include "heliograph.redis.secret" . }}
- name: redis
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      {{- if not $redis.url }}
      - {key: password, path: password}
      {{- else }}
      {{- include "heliograph.store.credentials" $redis.auth | nindent 6 }}
      {{- end }}
{{- end }}
{{- if and $redis.url $redis.sentinelAuth.secret }}
- name: sentinel
  secret:
    secretName: {{ $redis.sentinelAuth.secret }}
    defaultMode: 0440
    items:
      {{- include "heliograph.store.credentials" $redis.sentinelAuth | nindent 6 }}
{{- end }}
{{- if and $redis.url $redis.tls.caSecret }}
- name: redis-ca
  secret: {secretName: {{ $redis.tls.caSecret }}, items: [{key: {{ $redis.tls.caKey }}, path: ca.crt}]}
{{- end }}
{{- if and $redis.url $redis.tls.certificateSecret }}
- name: redis-certificate
  secret: {secretName: {{ $redis.tls.certificateSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "heliograph.store.credentials" -}}
- {key: {{ .passwordKey }}, path: password}
{{- with .usernameKey }}
- {key: {{ . }}, path: username}
{{- end }}
{{- end }}
