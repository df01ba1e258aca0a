{{/* What values.schema.json can't say: how values must be to each other. Each refusal says why and what to do. */}}
{{- define "sfd.check" -}}
{{- $settings := .Values.settings -}}
{{- range $name, $why := dict "bootstrap.servers" "the brokers, as host:port" "group.id" "the consumer group, part of every checkpoint's address" -}}
{{- if not (index ($settings.kafka | default dict) $name) -}}
{{- fail (printf "settings.kafka.%s is required: %s" $name $why) -}}
{{- end -}}
{{- end -}}
{{- if not (dig "input" "topic" "" $settings) -}}
{{- fail "settings.input.topic is required: the topic of rows to read" -}}
{{- end -}}
{{- if and (ne (dig "input" "columns" "fixed" $settings) "growing") (not (dig "sketch" "d" 0 $settings)) -}}
{{- fail "settings.sketch.d is required: the number of columns (or set settings.input.columns to growing)" -}}
{{- end -}}
{{- if gt (dig "sketch" "seed" 0 $settings | float64) 9007199254740991.0 -}}
{{- fail "settings.sketch.seed is beyond 2^53, where helm rounds whole numbers: take a smaller one, or give it as extraEnv SFD_SKETCH__SEED" -}}
{{- end -}}
{{- include "sfd.checkSecrets" . -}}
{{- include "sfd.checkStore" . -}}
{{- include "sfd.checkReplicas" . -}}
{{- $budget := dig "checkpoint" "revoke_budget_s" 10 $settings | float64 -}}
{{- if le (include "sfd.grace" . | float64) $budget -}}
{{- fail (printf "terminationGracePeriodSeconds must be above settings.checkpoint.revoke_budget_s (%v s): a worker killed before its last checkpoint leaves rows to replay" $budget) -}}
{{- end -}}
{{- if eq (include "sfd.port" . | int) 0 -}}
{{- fail "settings.http.port must not be 0 here: probes and monitors need to know the port" -}}
{{- end -}}
{{- if .Values.merge.enabled -}}
{{- if not (dig "merge" "topic" "" $settings) -}}
{{- fail "merge.enabled needs settings.merge.topic: where the merged sketch is published" -}}
{{- end -}}
{{- if not (or (dig "snapshot" "topic" "" $settings) (dig "merge" "topics" "" $settings)) -}}
{{- fail "merge.enabled needs settings.snapshot.topic, or settings.merge.topics: merge reads what workers publish there" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.merge.enabled (include "sfd.onDisk" .) (ne .Values.persistence.accessMode "ReadWriteMany") -}}
{{- fail (printf "merge.enabled with settings.checkpoint.url file:// needs persistence.accessMode ReadWriteMany, not %s: large snapshots are read from the checkpoint store, and the claim is held by the worker's node" .Values.persistence.accessMode) -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "podMonitor and serviceMonitor would scrape each pod twice: enable one of them" -}}
{{- end -}}
{{- end -}}

{{- define "sfd.checkSecrets" -}}
{{- $secret := "(?i)(passw(or)?d|passphrase|secret|token$|jaas|oauthbearer\\.config|account_key|access_key|sas_key|ssl\\.key\\.pem|private\\.key\\.pem|service_account_key)" -}}
{{- $callback := .Values.settings.kafka_oauth_callback -}}
{{- range $name, $_ := .Values.settings.kafka -}}
{{- /* With a function that makes tokens it is that function's argument, a region or a scope. */ -}}
{{- if and (regexMatch $secret $name) (not (and $callback (eq $name "sasl.oauthbearer.config"))) -}}
{{- fail (printf "settings.kafka.%s is a secret, and settings are readable in a ConfigMap: put it into a Secret and name that under secretEnv.SFD_KAFKA__%s" $name ($name | upper | replace "." "_")) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := (dig "checkpoint" "options" dict .Values.settings) -}}
{{- if regexMatch $secret $name -}}
{{- fail (printf "settings.checkpoint.options.%s is a secret, and settings are readable in a ConfigMap: use a workload identity (serviceAccount.annotations), or put it into a Secret and name that under secretEnv" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sfd.checkStore" -}}
{{- $url := include "sfd.url" . -}}
{{- $volume := .Values.persistence -}}
{{- if not $url -}}
{{- fail "settings.checkpoint.url is required: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or file:///path with persistence" -}}
{{- end -}}
{{- if hasPrefix "memory:" $url -}}
{{- fail "settings.checkpoint.url memory:// would be lost with each pod: use an object store, or file:///path with persistence" -}}
{{- end -}}
{{- if include "sfd.onDisk" . -}}
{{- if not (or $volume.enabled $volume.existingClaim) -}}
{{- fail "settings.checkpoint.url file:// without persistence would be lost with each pod: set persistence.enabled, or use an object store" -}}
{{- end -}}
{{- if not (hasPrefix (printf "file://%s/" (trimSuffix "/" $volume.mountPath)) (printf "%s/" $url)) -}}
{{- fail (printf "settings.checkpoint.url %s is not below persistence.mountPath %s: checkpoints would be written into the pod and lost with it" $url $volume.mountPath) -}}
{{- end -}}
{{- if and (gt (include "sfd.mostReplicas" . | int) 1) (ne $volume.accessMode "ReadWriteMany") -}}
{{- fail (printf "settings.checkpoint.url file:// with more than one replica needs persistence.accessMode ReadWriteMany, not %s: the next owner of a partition could not see its checkpoints; use an object store, such a claim, or replicas: 1" $volume.accessMode) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sfd.checkReplicas" -}}
{{- $known := not (kindIs "invalid" .Values.partitions) -}}
{{- if and .Values.keda.enabled (not $known) -}}
{{- fail "keda.enabled needs partitions, the input topic's number: a replica beyond it would have nothing to read" -}}
{{- end -}}
{{- if and .Values.topics.create (not $known) -}}
{{- fail "topics.create needs partitions, the number to make the input topic with" -}}
{{- end -}}
{{- if and $known (gt (include "sfd.mostReplicas" . | int) (.Values.partitions | int)) -}}
{{- fail (printf "%s is above partitions (%v): a replica beyond the number of partitions would have nothing to read" (ternary "keda.maxReplicas" "replicas" .Values.keda.enabled) .Values.partitions) -}}
{{- end -}}
{{- if and .Values.keda.enabled (gt (.Values.keda.minReplicas | int) (include "sfd.mostReplicas" . | int)) -}}
{{- fail "keda.minReplicas is above keda.maxReplicas (or partitions)" -}}
{{- end -}}
{{- end -}}
