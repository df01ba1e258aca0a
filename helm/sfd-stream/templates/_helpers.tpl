{{- define "sfd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sfd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "sfd.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sfd.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
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
