{{- /*
Values that do not fit together, and what to do. What a single value may be is in values.schema.json. Helm renders this file
first, so that these lines come before any other.
*/}}

{{- define "heliograph.refusals" -}}
{{- with .Values }}
{{- range $part, $values := pick . "translator" "distributor" "secrets" }}
{{- if not (or $values.serviceAccount.create $values.serviceAccount.name) }}
{{- fail (printf "%s.serviceAccount: create is false, so name the ServiceAccount that is there" $part) }}
{{- end }}
{{- end }}
{{- if and .distributor.autoscaling.enabled .distributor.keda.enabled }}
{{- fail "distributor.autoscaling and distributor.keda are both on: two would scale against each other, so switch one off" }}
{{- end }}
{{- with .distributor.autoscaling }}
{{- if and .enabled (not .cpuPerPod) (not .streamsPerPod) }}
{{- fail "distributor.autoscaling has nothing to scale by: set cpuPerPod or streamsPerPod" }}
{{- end }}
{{- end }}
{{- range list .distributor.autoscaling .distributor.keda }}
{{- if and .enabled (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
{{- fail "distributor: minReplicas is more than maxReplicas" }}
{{- end }}
{{- end }}
{{- if and (eq .access.tokens "jwks") (or (not .access.jwks.configMap) (not .access.jwks.issuer)) }}
{{- fail "access.tokens is jwks: name access.jwks.configMap and access.jwks.issuer" }}
{{- end }}
{{- if and (eq .access.tokens "none") (not .access.clientCa.secret) }}
{{- fail "clients could not authenticate: set access.tokens, or name access.clientCa.secret" }}
{{- end }}
{{- if .proxies.enabled }}
{{- if and (eq .proxies.credential "token") (eq .access.tokens "none") }}
{{- fail "Envoys show tokens (proxies.credential) and distributors take none (access.tokens): change one of them" }}
{{- end }}
{{- if eq .proxies.credential "certificate" }}
{{- if not .proxies.certificateSecret }}
{{- fail "proxies.credential is certificate: name the Secret of each Gateway's namespace in proxies.certificateSecret" }}
{{- end }}
{{- if not .access.clientCa.secret }}
{{- fail "proxies.credential is certificate: name the Secret with their authorities in access.clientCa.secret" }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq .certificates.source "existing") (not .certificates.existing.secret) }}
{{- fail "certificates.source is existing: name the Secret with tls.crt, tls.key and ca.crt in certificates.existing.secret" }}
{{- end }}
{{- /* Here and not in the schema, whose messages quote the value. */}}
{{- if contains "@" .redis.url }}
{{- fail "redis.url has credentials in it, which everybody would see who sees the release: put them into a Secret and name it in redis.auth.secret" }}
{{- end }}
{{- if and .redis.url (not (regexMatch "^rediss?(\\+(sentinel|cluster))?://.+$" .redis.url)) }}
{{- fail "redis.url is none of redis://HOST:PORT, redis+sentinel://HOST:PORT,…/MASTER, redis+cluster://HOST:PORT,… and the same with rediss" }}
{{- end }}
{{- if not .redis.url }}
{{- range $name, $value := dict "auth.secret" .redis.auth.secret "auth.usernameKey" .redis.auth.usernameKey "translatorSecret" .redis.translatorSecret "distributorSecret" .redis.distributorSecret "sentinelAuth.secret" .redis.sentinelAuth.secret "tls.caSecret" .redis.tls.caSecret "tls.certificateSecret" .redis.tls.certificateSecret }}
{{- if $value }}
{{- fail (printf "redis.%s is for a Redis of your own: say where it is in redis.url" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .redis.url (not (hasPrefix "rediss" .redis.url)) (or .redis.tls.caSecret .redis.tls.certificateSecret) }}
{{- fail "redis.tls is for a Redis with TLS, and redis.url is one without: write rediss instead of redis there" }}
{{- end }}
{{- if and .redis.sentinelAuth.secret (not (contains "+sentinel://" .redis.url)) }}
{{- fail "redis.sentinelAuth is for Sentinels, and redis.url names none: write redis+sentinel://HOST:PORT,…/MASTER there" }}
{{- end }}
{{- if and .redis.auth.usernameKey (not .redis.auth.secret) (not (and .redis.translatorSecret .redis.distributorSecret)) }}
{{- fail "redis.auth.usernameKey is a key of a Secret, and there is a program without one: name redis.auth.secret, or both redis.translatorSecret and redis.distributorSecret" }}
{{- end }}
{{- if and .redis.sentinelAuth.usernameKey (not .redis.sentinelAuth.secret) }}
{{- fail "redis.sentinelAuth.usernameKey is a key of a Secret: name that in redis.sentinelAuth.secret" }}
{{- end }}
{{- end }}
{{- end }}
