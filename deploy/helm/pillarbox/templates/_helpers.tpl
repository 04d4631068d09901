{{/* Names, labels and the parts that the pods of all daemons share. */}}

{{- define "pillarbox.name" -}}
{{- $name := ternary .Release.Name (printf "%s-pillarbox" .Release.Name) (contains "pillarbox" .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "pillarbox.selector" -}}
app.kubernetes.io/name: pillarbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pillarbox.labels" -}}
{{ include "pillarbox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "pillarbox.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The beginning of each file; the argument is what else the daemon's `environment` has. */}}
{{- define "pillarbox.environment" -}}
environment:
  database:
    uri: !Env "${PILLARBOX_DATABASE_URI}"
    {{- with omit (.database | default dict) "uri" }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  # Made by the daemon itself: a volume may be written by every account, which `var` must not.
  var: /tmp/pillarbox
  {{- with omit . "database" "var" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
metrics: {listen: "0.0.0.0:9464"}
{{- end }}

{{/* The variables of a container. secret, key: where the database's URI is; root: the chart's own scope. */}}
{{- define "pillarbox.variables" -}}
- name: PILLARBOX_DATABASE_URI
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- range .root.Values.secrets }}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end }}
{{- end }}

{{/* What may be done in a container: nothing. */}}
{{- define "pillarbox.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{- define "pillarbox.unprivileged" -}}
runAsNonRoot: true
runAsUser: 999
runAsGroup: 999
fsGroup: 999
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The template of a daemon's pods. daemon: smtpd, queued, httpd or collect; arguments after --config; metrics: a port;
     ports: more of them; grace: seconds; root: the chart's own scope. */}}
{{- define "pillarbox.pod" -}}
{{- $root := .root -}}
metadata:
  annotations:
    # Another configuration is another pod: each daemon drains, and the next one starts.
    pillarbox/configuration: {{ include "pillarbox.files" $root | sha256sum }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "pillarbox.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    pillarbox/daemon: {{ .daemon }}
spec:
  serviceAccountName: {{ include "pillarbox.name" $root }}
  automountServiceAccountToken: false
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    {{- include "pillarbox.unprivileged" $root | nindent 4 }}
  containers:
    - name: {{ .daemon }}
      image: {{ include "pillarbox.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command:
        - python3
        - -m
        - {{ .daemon }}
        - --config
        - /etc/pillarbox/{{ .daemon }}.yaml
        {{- range .arguments }}
        - {{ . | quote }}
        {{- end }}
      env:
        {{- include "pillarbox.variables" (merge (dict "root" $root) (pick $root.Values.database "secret" "key")) | nindent 8 }}
      ports:
        - name: metrics
          containerPort: {{ .metrics }}
        {{- range $name, $port := .ports }}
        - name: {{ $name }}
          containerPort: {{ $port }}
        {{- end }}
      # Alive as long as its loop turns. Ready is another question: without PostgreSQL a worker keeps results in memory,
      # which a restart would lose and send again.
      startupProbe:
        httpGet: {path: /healthy, port: metrics}
        periodSeconds: 2
        failureThreshold: 75
      livenessProbe:
        httpGet: {path: /healthy, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /ready, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 4
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        {{- include "pillarbox.confined" $root | nindent 8 }}
      volumeMounts:
        - {name: configuration, mountPath: /etc/pillarbox}
        - {name: scratch, mountPath: /tmp}
        {{- range $number, $file := $root.Values.files }}
        - {name: files-{{ $number }}, mountPath: {{ $file.path }}, readOnly: true}
        {{- end }}
  volumes:
    - name: configuration
      configMap:
        name: {{ include "pillarbox.name" $root }}
    - name: scratch
      emptyDir: {}
    {{- range $number, $file := $root.Values.files }}
    - name: files-{{ $number }}
      secret:
        secretName: {{ $file.secret }}
        defaultMode: 0440
    {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- else }}
  # Pods of one kind are on different nodes where there are several.
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "pillarbox.selector" $root | nindent 16 }}
                app.kubernetes.io/component: {{ .component }}
  {{- end }}
{{- end }}

{{/* The files of all daemons, by name. */}}
{{- define "pillarbox.files" -}}
smtpd.yaml: |
  {{- include "pillarbox.environment" .Values.smtpd.environment | nindent 2 }}
  {{- .Values.smtpd.config | nindent 2 }}
queued.yaml: |
  {{- include "pillarbox.environment" .Values.queued.environment | nindent 2 }}
  workers:
    {{- range .Values.queued.workers }}
    - id: {{ .id | quote }}
      where: {{ .where | quote }}
    {{- end }}
  {{- .Values.queued.config | nindent 2 }}
{{- if .Values.httpd.enabled }}
httpd.yaml: |
  {{- include "pillarbox.environment" .Values.httpd.environment | nindent 2 }}
  listen: 0.0.0.0:{{ .Values.httpd.port }}
  {{- .Values.httpd.config | nindent 2 }}
{{- end }}
{{- if .Values.collect.enabled }}
collect.yaml: |
  {{- include "pillarbox.environment" .Values.collect.environment | nindent 2 }}
  {{- .Values.collect.config | nindent 2 }}
{{- end }}
{{- end }}
