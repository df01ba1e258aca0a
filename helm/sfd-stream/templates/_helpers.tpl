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

{{/* Of a component: dict "root" . "component" "worker|merge|score" */}}
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

{{/* The labels of an object, each once: dict "root" . "component" "worker|merge|..." "more" {...}. The chart's own, then
those of all objects, then those of this one; the last one counts, except for the labels that select pods. */}}
{{- define "sfd.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
-}}
{{- mergeOverwrite $own (.root.Values.commonLabels | default dict) (.more | default dict) (include "sfd.selector" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* The annotations of an object, with those of all: dict "root" . "own" {...}. Nothing where there are none. */}}
{{- define "sfd.annotations" -}}
{{- with merge (dict) (.own | default dict) (.root.Values.commonAnnotations | default dict) -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* A scheduling value of a component: its own, or that of the workers. dict "root" . "component" "merge" "name" "affinity"; as {"value": ...} */}}
{{- define "sfd.scheduling" -}}
{{- $own := index (index .root.Values .component | default dict) .name -}}
{{- dict "value" (ternary (index .root.Values .name) $own (kindIs "invalid" $own)) | toJson -}}
{{- end -}}

{{- define "sfd.affinity" -}}
{{- $affinity := (include "sfd.scheduling" (dict "root" .root "component" .component "name" "affinity") | fromJson).value -}}
{{- $preset := .root.Values.podAntiAffinityPreset -}}
{{- if and $preset (has .component (list "worker" "score")) -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "sfd.selector" . | fromYaml)) -}}
{{- $soft := dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- $hard := dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
{{- $affinity = merge (dict "podAntiAffinity" (ternary $soft $hard (eq $preset "soft"))) ($affinity | default dict) -}}
{{- end -}}
{{- if $affinity -}}{{- toYaml $affinity -}}{{- end -}}
{{- end -}}

{{/* Of the release and of a parent chart. */}}
{{- define "sfd.pullSecrets" -}}
{{- $all := list -}}
{{- range concat (dig "imagePullSecrets" list (.Values.global | default dict)) (.Values.imagePullSecrets | default list) -}}
{{- $all = append $all (ternary (dict "name" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- if $all -}}{{- uniq $all | toYaml -}}{{- end -}}
{{- end -}}

{{/* How pods are replaced: as given, or by what the checkpoints allow. */}}
{{- define "sfd.strategy" -}}
{{- if .Values.strategy -}}
{{- toYaml .Values.strategy -}}
{{- else if and (include "sfd.onDisk" .) (ne .Values.persistence.accessMode "ReadWriteMany") -}}
# The claim is for one node at a time: the old pod goes first.
type: Recreate
{{- else -}}
# One by one, and never fewer: each step is one rebalance.
type: RollingUpdate
rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
{{- end -}}
{{- end -}}

{{- define "sfd.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sfd.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The first part of a repository is a host if it has a dot or a port, or is localhost. global.imageRegistry replaces it. */}}
{{- define "sfd.repository" -}}
{{- $repository := .Values.image.repository -}}
{{- with dig "imageRegistry" "" (.Values.global | default dict) -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- $repository -}}
{{- end -}}

{{- define "sfd.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" (include "sfd.repository" .) .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" (include "sfd.repository" .) (.Values.image.tag | default .Chart.AppVersion) -}}
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
{{- range splitList "," (index .Values.settings.kafka "bootstrap.servers" | default "") }}
{{ regexFind ":[0-9]+$" (trim .) | trimPrefix ":" | default "9092" }}
{{- end }}
{{- $issuer := index .Values.settings.kafka "sasl.oauthbearer.token.endpoint.url" }}
{{- $registries := dig "schema_registry" "url" "" .Values.settings | splitList "," }}
{{- range concat (dig "checkpoint" "options" dict .Values.settings | values) $registries (list $issuer) }}
{{ include "sfd.portOf" (toString . | trim) }}
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

{{/* Whether something is asked over HTTPS: an object store, a schema registry, or an issuer of tokens. */}}
{{- define "sfd.asksHttps" -}}
{{- if or (not (include "sfd.onDisk" .)) (index .Values.settings.kafka "sasl.oauthbearer.token.endpoint.url") .Values.settings.kafka_oauth_callback (contains "https://" (dig "schema_registry" "url" "" .Values.settings)) -}}yes{{- end -}}
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

{{/* The consumer group of the scorers, as the settings derive it. */}}
{{- define "sfd.scoreGroup" -}}
{{- dig "score" "group" "" .Values.settings | default (printf "%v-score" (index .Values.settings.kafka "group.id")) -}}
{{- end -}}

{{/* The selector of this release's series. A Prometheus that adds no namespace has this release only. */}}
{{- define "sfd.series" -}}
{{- $topics := list (.Values.settings.input.topic | toString | regexQuoteMeta) -}}
{{- with dig "merge" "topic" "" .Values.settings -}}
{{- $topics = append $topics (toString . | regexQuoteMeta) -}}
{{- end -}}
{{- $group := printf "group=%q" (index .Values.settings.kafka "group.id" | toString) -}}
{{- if dig "score" "topic" "" .Values.settings -}}
{{- $group = printf "group=~%q" (printf "%s|%s" (index .Values.settings.kafka "group.id" | toString | regexQuoteMeta) (include "sfd.scoreGroup" . | regexQuoteMeta)) -}}
{{- end -}}
{{- printf "{namespace=~\"%s|\",%s,topic=~%q}" .Release.Namespace $group (join "|" $topics) -}}
{{- end -}}

{{/* By alert, the number that it compares with: as given, or derived from the settings; "none" leaves the alert out. */}}
{{- define "sfd.thresholds" -}}
{{- $settings := .Values.settings -}}
{{- $snapshotEvery := dig "snapshot" "every_s" 60 $settings -}}
{{- $derived := dict
  "SfdLagGrowing" 10000
  "SfdPartitionStuck" 120
  "SfdCheckpointTooOld" (maxf 300 (mulf 3 (dig "checkpoint" "every_s" 30 $settings)))
  "SfdSnapshotTooOld" (ternary "none" (maxf 1800 (mulf 3 ($snapshotEvery | default 0))) (kindIs "invalid" $snapshotEvery))
  "SfdDeadLetterShare" (divf (dig "dead_letters" "max_share" 0.1 $settings) 10)
  "SfdFencedRepeatedly" 2
  "SfdLoopNotTurning" (dig "http" "stuck_after_s" 60 $settings)
  "SfdRestarting" 2
  "SfdScoreLagGrowing" 10000
-}}
{{- range $alert, $value := merge (deepCopy (.Values.prometheusRule.thresholds | default dict)) $derived }}
{{- if and (not (kindIs "string" $value)) (eq (floor $value) (float64 $value)) }}
{{ $alert }}: {{ int64 $value | quote }}
{{- else }}
{{ $alert }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sfd.protocol" -}}
{{- index .Values.settings.kafka "security.protocol" | default "plaintext" | upper -}}
{{- end -}}

{{- define "sfd.mechanism" -}}
{{- index .Values.settings.kafka "sasl.mechanism" | default (index .Values.settings.kafka "sasl.mechanisms") | default "GSSAPI" -}}
{{- end -}}

{{/* The metadata of KEDA's kafka trigger: dict "root" . "group" "...". sasl and tls as the worker has them; what is given in
keda.metadata holds over all. */}}
{{- define "sfd.kedaMetadata" -}}
{{- $group := .group -}}
{{- with .root -}}
{{- $made := dict
  "bootstrapServers" (index .Values.settings.kafka "bootstrap.servers")
  "consumerGroup" $group
  "topic" .Values.settings.input.topic
  "lagThreshold" (.Values.keda.lagThreshold | int64 | toString)
  "offsetResetPolicy" (dig "input" "start" "earliest" .Values.settings)
-}}
{{- /* A replica more than there are partitions with lag would only cost a rebalance; lag that does not move
(a partition that waits for a person) is no reason for one either. */ -}}
{{- $_ := set $made "limitToPartitionsWithLag" "true" -}}
{{- $_ := set $made "excludePersistentLag" "true" -}}
{{- if hasSuffix "SSL" (include "sfd.protocol" .) -}}
{{- $_ := set $made "tls" "enable" -}}
{{- end -}}
{{- if hasPrefix "SASL" (include "sfd.protocol" .) -}}
{{- $_ := set $made "sasl" (index (dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512" "GSSAPI" "gssapi" "OAUTHBEARER" "oauthbearer") (include "sfd.mechanism" .)) -}}
{{- end -}}
{{- range $name, $value := mergeOverwrite $made (.Values.keda.metadata | default dict) -}}
{{- if $value }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
