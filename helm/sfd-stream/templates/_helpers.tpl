{{- define "sfd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sfd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- else if contains (include "sfd.name" .) .Release.Name -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sfd.name" .) | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of a component: dict "root" . "component" "worker|merge" */}}
{{- define "sfd.nameOf" -}}
{{- include "sfd.fullname" .root -}}{{- if ne .component "worker" -}}-{{ .component }}{{- end -}}
{{- end -}}

{{/* What a test pod runs to ask a component, by its Service, whether it is ready. */}}
{{- define "sfd.asks" -}}
{{- list "health" "--ready" "--wait-s" "120" "--set" (printf "http.host=%s" (include "sfd.nameOf" .)) | toJson -}}
{{- end -}}

{{- define "sfd.selector" -}}
app.kubernetes.io/name: {{ include "sfd.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sfd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "sfd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sfd.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sfd.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sfd.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The settings as the program reads them: as given, listening on all addresses of the pod. */}}
{{- define "sfd.settings" -}}
{{- $http := merge (deepCopy (.Values.settings.http | default dict)) (dict "host" "0.0.0.0") -}}
{{- toYaml (merge (dict "http" $http) (deepCopy .Values.settings)) -}}
{{- end -}}

{{- define "sfd.port" -}}
{{- dig "http" "port" 9464 .Values.settings | int -}}
{{- end -}}

{{/* Ports of brokers and stores elsewhere, as the settings have them: one a line. 9092 is librdkafka's own default. */}}
{{- define "sfd.portsOut" -}}
{{- range splitList "," (index .Values.settings.kafka "bootstrap.servers") }}
{{ regexFind ":[0-9]+$" (trim .) | trimPrefix ":" | default "9092" }}
{{- end }}
{{- $issuer := index .Values.settings.kafka "sasl.oauthbearer.token.endpoint.url" }}
{{- range append (dig "checkpoint" "options" dict .Values.settings | values) $issuer }}
{{ include "sfd.portOf" (toString .) }}
{{- end }}
{{- range .Values.networkPolicy.extraPorts }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Of an address: its port, or 80 of one without; nothing for 443, which has a rule of its own, and for what is no address. */}}
{{- define "sfd.portOf" -}}
{{- if regexMatch "^https?://[^/]+:[0-9]+(/.*)?$" . -}}
{{- regexReplaceAll "^https?://[^/]+:([0-9]+)(/.*)?$" . "${1}" -}}
{{- else if hasPrefix "http://" . -}}
80
{{- end -}}
{{- end -}}

{{/* Whether something is asked over HTTPS: an object store, or an issuer of tokens. */}}
{{- define "sfd.asksHttps" -}}
{{- if or (not (include "sfd.onDisk" .)) (index .Values.settings.kafka "sasl.oauthbearer.token.endpoint.url") .Values.settings.kafka_oauth_callback -}}yes{{- end -}}
{{- end -}}

{{- define "sfd.url" -}}
{{- dig "checkpoint" "url" "" .Values.settings -}}
{{- end -}}

{{- define "sfd.onDisk" -}}
{{- if hasPrefix "file:" (include "sfd.url" .) -}}yes{{- end -}}
{{- end -}}

{{- define "sfd.claim" -}}
{{- default (include "sfd.fullname" .) .Values.persistence.existingClaim -}}
{{- end -}}

{{/* The most replicas that there may ever be. */}}
{{- define "sfd.mostReplicas" -}}
{{- if .Values.keda.enabled -}}
{{- .Values.keda.maxReplicas | default .Values.partitions | int -}}
{{- else -}}
{{- .Values.replicas | int -}}
{{- end -}}
{{- end -}}

{{- define "sfd.grace" -}}
{{- $budget := dig "checkpoint" "revoke_budget_s" 10 .Values.settings | float64 | ceil | int -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add $budget 20 -}}
{{- else -}}
{{- .Values.terminationGracePeriodSeconds | int -}}
{{- end -}}
{{- end -}}
