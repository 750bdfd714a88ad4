{{- /*
Values that do not fit together, and what to do. What a single value may be is in values.schema.json. Helm renders this file
first, so that these lines come before any other.
*/}}

{{- define "heliograph.refusals" -}}
{{- with .Values }}
{{- range $part, $values := pick . "translator" "distributor" "secrets" }}
{{- if not (or $values.serviceAccount.create $values.serviceAccount.name) }}
{{- fail (printf "%s.serviceAccount: create is false: set name to an existing ServiceAccount" $part) }}
{{- end }}
{{- end }}
{{- $size := .translator.limits.tableSize }}
{{- $number := regexReplaceAll "^0+|[A-Za-z]+$" $size "" }}
{{- $unit := get (dict "KiB" 1 "MiB" 1024 "GiB" 1048576) (regexFind "[A-Za-z]+$" $size) }}
{{- /* A number of more digits is too large, and none that could be multiplied. */}}
{{- if or (gt (len $number) 9) (gt (mul (int64 $number) $unit) 61440) }}
{{- fail (printf "translator.limits.tableSize is %s: set it to at most 60MiB, since the store takes no resource of more than 64MiB" $size) }}
{{- end }}
{{- if and .distributor.autoscaling.enabled .distributor.keda.enabled }}
{{- fail "distributor.autoscaling and distributor.keda are both enabled and would conflict: disable one of them" }}
{{- end }}
{{- with .distributor.autoscaling }}
{{- if and .enabled (not .cpuPerPod) (not .streamsPerPod) }}
{{- fail "distributor.autoscaling has no metric: set cpuPerPod or streamsPerPod" }}
{{- end }}
{{- end }}
{{- range list .distributor.autoscaling .distributor.keda }}
{{- if and .enabled (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
{{- fail "distributor: minReplicas is more than maxReplicas" }}
{{- end }}
{{- end }}
{{- if and (eq .access.tokens "jwks") (or (not .access.jwks.configMap) (not .access.jwks.issuer)) }}
{{- fail "access.tokens is jwks: set access.jwks.configMap and access.jwks.issuer" }}
{{- end }}
{{- if and (eq .access.tokens "none") (not .access.clientCa.secret) }}
{{- fail "clients could not authenticate: set access.tokens or access.clientCa.secret" }}
{{- end }}
{{- if .proxies.enabled }}
{{- if and (eq .proxies.credential "token") (eq .access.tokens "none") }}
{{- fail "Envoys authenticate with tokens (proxies.credential), but distributors accept none (access.tokens): change one of them" }}
{{- end }}
{{- if eq .proxies.credential "certificate" }}
{{- if not .proxies.certificateSecret }}
{{- fail "proxies.credential is certificate: set proxies.certificateSecret to the name of the Secret in each Gateway's namespace" }}
{{- end }}
{{- if not .access.clientCa.secret }}
{{- fail "proxies.credential is certificate: set access.clientCa.secret to the Secret with the CA bundle of the Envoys" }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq .certificates.source "existing") (not .certificates.existing.secret) }}
{{- fail "certificates.source is existing: set certificates.existing.secret to the Secret with tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- /* Here and not in the schema, whose messages quote the value. */}}
{{- if contains "@" .redis.url }}
{{- fail "redis.url contains credentials, which everyone who can read the release would see: put them into a Secret, and set redis.auth.secret to its name" }}
{{- end }}
{{- if and .redis.url (not (regexMatch "^rediss?(\\+(sentinel|cluster))?://.+$" .redis.url)) }}
{{- fail "redis.url must be one of redis://HOST:PORT, redis+sentinel://HOST:PORT,…/MASTER, redis+cluster://HOST:PORT,… and the same with rediss" }}
{{- end }}
{{- if not .redis.url }}
{{- range $name, $value := dict "auth.secret" .redis.auth.secret "auth.usernameKey" .redis.auth.usernameKey "translatorSecret" .redis.translatorSecret "distributorSecret" .redis.distributorSecret "sentinelAuth.secret" .redis.sentinelAuth.secret "tls.caSecret" .redis.tls.caSecret "tls.certificateSecret" .redis.tls.certificateSecret }}
{{- if $value }}
{{- fail (printf "redis.%s is for your own Redis: set redis.url" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .redis.url (not (hasPrefix "rediss" .redis.url)) (or .redis.tls.caSecret .redis.tls.certificateSecret) }}
{{- fail "redis.tls needs TLS, and redis.url has none: begin it with rediss instead of redis" }}
{{- end }}
{{- if and .redis.sentinelAuth.secret (not (contains "+sentinel://" .redis.url)) }}
{{- fail "redis.sentinelAuth is for Sentinels, and redis.url has none: set it to redis+sentinel://HOST:PORT,…/MASTER" }}
{{- end }}
{{- if and .redis.auth.usernameKey (not .redis.auth.secret) (not (and .redis.translatorSecret .redis.distributorSecret)) }}
{{- fail "redis.auth.usernameKey is a key of a Secret, but a program has no Secret: set redis.auth.secret, or both redis.translatorSecret and redis.distributorSecret" }}
{{- end }}
{{- if and .redis.sentinelAuth.usernameKey (not .redis.sentinelAuth.secret) }}
{{- fail "redis.sentinelAuth.usernameKey is a key of a Secret: set redis.sentinelAuth.secret to its name" }}
{{- end }}
{{- end }}
{{- end }}
