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
{{- include "sfd.checkLabels" . -}}
{{- include "sfd.checkSecrets" . -}}
{{- include "sfd.checkStore" . -}}
{{- include "sfd.checkReplicas" . -}}
{{- if .Values.keda.enabled -}}
{{- include "sfd.checkKeda" . -}}
{{- end -}}
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
{{- if .Values.score.enabled -}}
{{- if not (dig "score" "topic" "" $settings) -}}
{{- fail "score.enabled needs settings.score.topic: where scores are written" -}}
{{- end -}}
{{- if and (include "sfd.onDisk" .) (ne .Values.persistence.accessMode "ReadWriteMany") -}}
{{- fail (printf "score.enabled with settings.checkpoint.url file:// needs persistence.accessMode ReadWriteMany, not %s: large snapshots are read from the checkpoint store, and the claim is held by the worker's node" .Values.persistence.accessMode) -}}
{{- end -}}
{{- if and .Values.partitions (gt (.Values.score.replicas | int) (.Values.partitions | int)) -}}
{{- fail (printf "score.replicas is %v, but there are %v partitions: the others would have nothing to do" .Values.score.replicas .Values.partitions) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.podAntiAffinityPreset (dig "podAntiAffinity" "" (.Values.affinity | default dict)) -}}
{{- fail "podAntiAffinityPreset and affinity.podAntiAffinity say two things: set one of them" -}}
{{- end -}}
{{- $strategy := ternary (dig "type" "RollingUpdate" (.Values.strategy | default dict)) "" (not (empty .Values.strategy)) -}}
{{- if and (eq .Values.kind "StatefulSet") (eq $strategy "Recreate") -}}
{{- fail "strategy.type Recreate is for a Deployment: a StatefulSet has RollingUpdate and OnDelete" -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") (eq $strategy "OnDelete") -}}
{{- fail "strategy.type OnDelete is for a StatefulSet: a Deployment has RollingUpdate and Recreate" -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") (eq $strategy "RollingUpdate") (include "sfd.onDisk" .) (ne .Values.persistence.accessMode "ReadWriteMany") -}}
{{- fail (printf "strategy.type RollingUpdate needs persistence.accessMode ReadWriteMany, not %s: the new pod would wait for a claim that the old one holds" .Values.persistence.accessMode) -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "podMonitor and serviceMonitor would scrape each pod twice: enable one of them" -}}
{{- end -}}
{{- end -}}

{{- define "sfd.checkLabels" -}}
{{- $selecting := include "sfd.selector" (dict "root" . "component" "worker") | fromYaml -}}
{{- range $value := list "commonLabels" "podLabels" -}}
{{- range $name, $_ := index $.Values $value -}}
{{- if hasKey $selecting $name -}}
{{- fail (printf "%s has %s, by which the chart selects its pods: take another label, or nameOverride" $value $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a name is a secret's, or a text holds one, by the program's own patterns (files/secrets.yaml): nothing, or the words for it. */}}
{{- define "sfd.secret" -}}
{{- $known := .root.Files.Get "files/secrets.yaml" | fromYaml -}}
{{- $value := .value | toString -}}
{{- $found := "" -}}
{{- if and (regexMatch $known.name .name) (not (regexMatch $known.about .name)) $value -}}
{{- $found = "is a secret" -}}
{{- else -}}
{{- range $known.texts -}}
{{- if regexMatch . $value -}}
{{- $found = "holds a secret (a password, a key or a token in its text)" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* With a function that makes tokens it is that function's argument, a region or a scope. */ -}}
{{- if and (eq .name "sasl.oauthbearer.config") .root.Values.settings.kafka_oauth_callback (eq $found "is a secret") -}}
{{- $found = "" -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* Everything that would be readable in a ConfigMap, a pod's spec or a ScaledObject. */}}
{{- define "sfd.checkSecrets" -}}
{{- $root := . -}}
{{- range $section, $part := .Values.settings -}}
{{- $leaves := ternary $part (dict) (kindIs "map" $part) -}}
{{- if eq $section "checkpoint" -}}
{{- range $name, $value := ($part.options | default dict) -}}
{{- with include "sfd.secret" (dict "root" $root "name" $name "value" $value) -}}
{{- fail (printf "settings.checkpoint.options.%s %s, and settings are readable in a ConfigMap: use a workload identity (serviceAccount.annotations), or put it into a Secret and name that under secretEnv.SFD_CHECKPOINT__OPTIONS__%s" $name . (upper $name)) -}}
{{- end -}}
{{- end -}}
{{- $leaves = omit $part "options" -}}
{{- end -}}
{{- range $name, $value := $leaves -}}
{{- with include "sfd.secret" (dict "root" $root "name" $name "value" $value) -}}
{{- fail (printf "settings.%s.%s %s, and settings are readable in a ConfigMap: put it into a Secret and name that under secretEnv.SFD_%s__%s" $section $name . (upper $section) ($name | upper | replace "." "_")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if .value -}}
{{- $name := .name -}}
{{- with include "sfd.secret" (dict "root" $root "name" $name "value" .value) -}}
{{- fail (printf "extraEnv %s %s, and readable in the pod's spec: put it into a Secret and name that under secretEnv.%s" $name . $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.keda.metadata -}}
{{- with include "sfd.secret" (dict "root" $root "name" $name "value" $value) -}}
{{- fail (printf "keda.metadata.%s %s, and readable in the ScaledObject: put it into a TriggerAuthentication and name that under keda.authenticationRef" $name .) -}}
{{- end -}}
{{- end -}}
{{- range $component := list "merge" "score" -}}
{{- range (index $root.Values $component).extraArgs -}}
{{- $argument := regexReplaceAll "^--[a-z-]+=([^=]+=)" . "${1}" -}}
{{- $name := ternary (splitList "=" $argument | first | trimPrefix "--") "argument" (contains "=" $argument) -}}
{{- with include "sfd.secret" (dict "root" $root "name" (regexReplaceAll "^kafka\\." $name "") "value" (regexReplaceAll "^[^=]*=" $argument "")) -}}
{{- fail (printf "%s.extraArgs %s %s, and readable in the pod's spec: put it into a Secret and name that under secretEnv" $component $name .) -}}
{{- end -}}
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

{{- define "sfd.checkKeda" -}}
{{- if gt (dig "replicas" 0 (.Values.keda.fallback | default dict) | int) (include "sfd.mostReplicas" . | int) -}}
{{- fail (printf "keda.fallback.replicas is above keda.maxReplicas or partitions (%s): a replica beyond the number of partitions would have nothing to read" (include "sfd.mostReplicas" .)) -}}
{{- end -}}
{{- $protocol := include "sfd.protocol" . -}}
{{- $given := .Values.keda.metadata | default dict -}}
{{- $byIdentity := eq ($given.saslTokenProvider | default "") "aws_msk_iam" -}}
{{- if and (hasPrefix "SASL" $protocol) (ne ($given.sasl | default "") "none") -}}
{{- if not (has (include "sfd.mechanism" .) (list "PLAIN" "SCRAM-SHA-256" "SCRAM-SHA-512" "GSSAPI" "OAUTHBEARER")) -}}
{{- fail (printf "settings.kafka.sasl.mechanism %s is none that KEDA knows: use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI or OAUTHBEARER, or disable keda" (include "sfd.mechanism" .)) -}}
{{- end -}}
{{- if and $byIdentity (not $given.awsRegion) -}}
{{- fail "keda.metadata.saslTokenProvider aws_msk_iam needs keda.metadata.awsRegion" -}}
{{- end -}}
{{- if and $byIdentity (ne $protocol "SASL_SSL") -}}
{{- fail "keda.metadata.saslTokenProvider aws_msk_iam needs settings.kafka.security.protocol SASL_SSL" -}}
{{- end -}}
{{- if and $byIdentity (not .Values.keda.authenticationRef) (ne ($given.identityOwner | default "") "operator") -}}
{{- fail "keda.metadata.saslTokenProvider aws_msk_iam needs a role to read the lag with: name a TriggerAuthentication with podIdentity aws in keda.authenticationRef, or set keda.metadata.identityOwner to operator for the role of KEDA's own service account" -}}
{{- end -}}
{{- if not (or .Values.keda.authenticationRef $byIdentity) -}}
{{- fail (printf "keda.enabled with settings.kafka.security.protocol %s needs keda.authenticationRef: KEDA has no login of its own to read the lag with; name a TriggerAuthentication with username and password (or keda.metadata.saslTokenProvider: aws_msk_iam)" $protocol) -}}
{{- end -}}
{{- end -}}
{{- range list "ssl.certificate.location" "ssl.certificate.pem" "ssl.keystore.location" -}}
{{- if and (hasSuffix "SSL" $protocol) (index $.Values.settings.kafka .) (not $.Values.keda.authenticationRef) (ne ($given.tls | default "") "disable") -}}
{{- fail (printf "keda.enabled with settings.kafka.%s needs keda.authenticationRef: KEDA has no certificate of its own; name a TriggerAuthentication with cert, key and ca" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
