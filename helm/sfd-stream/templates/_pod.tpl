{{/* A pod of ours: dict "root" . "component" "worker|merge|score|topics" "args" (list ...) "resources" {...} "serves" bool "restart" "" */}}
{{- define "sfd.pod" -}}
{{- $root := .root -}}
{{- /* A pod that needs no checkpoints must not wait for a claim that another node holds. */}}
{{- $onDisk := and (include "sfd.onDisk" $root) (has .component (list "worker" "merge" "score")) -}}
metadata:
  annotations:
    {{- $checksum := dict "checksum/settings" (include "sfd.settings" $root | sha256sum) }}
    {{- merge $checksum ($root.Values.podAnnotations | default dict) | toYaml | nindent 4 }}
  labels:
    {{- include "sfd.labels" (dict "root" $root "component" .component "more" $root.Values.podLabels) | nindent 4 }}
spec:
  serviceAccountName: {{ include "sfd.serviceAccount" $root }}
  automountServiceAccountToken: {{ $root.Values.serviceAccount.automountToken }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "sfd.grace" $root }}
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with include "sfd.pullSecrets" $root }}
  imagePullSecrets:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with (include "sfd.scheduling" (dict "root" $root "component" .component "name" "priorityClassName") | fromJson).value }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $root.Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with $root.Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- /* Only what runs on and on: a Job or a test pod would never end with a sidecar. */}}
  {{- with ternary $root.Values.initContainers list .serves }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "sfd.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- with $root.Values.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        {{- toYaml .args | nindent 8 }}
      env:
        - name: SFD_CONFIG
          value: /etc/sfd-stream/settings.yaml
        {{- if and (eq .component "worker") (eq $root.Values.kind "StatefulSet") }}
        - name: SFD_KAFKA__GROUP_INSTANCE_ID
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- end }}
        {{- range $name, $from := $root.Values.secretEnv }}
        - name: {{ $name }}
          valueFrom:
            secretKeyRef:
              name: {{ $from.name }}
              key: {{ $from.key }}
        {{- end }}
        {{- with $root.Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .serves }}
      ports:
        - name: http
          containerPort: {{ include "sfd.port" $root }}
          protocol: TCP
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml $root.Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml $root.Values.probes.readiness | nindent 8 }}
      startupProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml $root.Values.probes.startup | nindent 8 }}
      {{- with $root.Values.lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: settings
          mountPath: /etc/sfd-stream
          readOnly: true
        - name: tmp
          mountPath: /tmp
        {{- if $onDisk }}
        - name: checkpoints
          mountPath: {{ $root.Values.persistence.mountPath }}
        {{- end }}
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with ternary $root.Values.sidecars list .serves }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: settings
      configMap:
        name: {{ include "sfd.fullname" $root }}
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- if $onDisk }}
    - name: checkpoints
      persistentVolumeClaim:
        claimName: {{ include "sfd.claim" $root }}
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with (include "sfd.scheduling" (dict "root" $root "component" .component "name" "nodeSelector") | fromJson).value }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with (include "sfd.scheduling" (dict "root" $root "component" .component "name" "tolerations") | fromJson).value }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "sfd.affinity" . }}
  affinity:
    {{- . | nindent 4 }}
  {{- end }}
  {{- if and (has .component (list "worker" "score")) $root.Values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- if and (eq .component "worker") $root.Values.topologySpread.constraints }}
    {{- toYaml $root.Values.topologySpread.constraints | nindent 4 }}
    {{- else }}
    {{- $labels := include "sfd.selector" . }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- $labels | nindent 10 }}
    {{- end }}
    {{- end }}
  {{- end }}
{{- end -}}
