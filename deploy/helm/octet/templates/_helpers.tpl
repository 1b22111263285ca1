{{- define "octet.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Labels that select the pods of (list $ COMPONENT) or (list $ "worker" POOL). */ -}}
{{- define "octet.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- if gt (len .) 2 }}
octet/pool: {{ index . 2 }}
{{- end }}
{{- end -}}

{{- define "octet.labels" -}}
{{- $root := index . 0 -}}
{{ include "octet.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end -}}

{{- /* The reference of image (list $ NAME), where NAME is a key of .Values.image.repositories. */ -}}
{{- define "octet.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $name := index . 1 -}}
{{ required "image.registry is not set. Octet's images are not published yet: build them, push them to a registry, and set image.registry to its host and folder, such as registry.example/octet (docs/install.md, Images). If the nodes already have the images, set it to the part of their names before /octet-worker, such as localhost." $image.registry }}/
{{- index $image.repositories $name -}}
{{- with index $image.digests $name -}}
@{{ . }}
{{- else -}}
:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "octet.secretName" -}}
{{ .Values.keys.secretName | default (printf "%s-keys" (include "octet.fullname" .)) }}
{{- end -}}

{{- /* A setting's value as text for an environment variable. Helm reads large integers of YAML as floats. */ -}}
{{- define "octet.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- else if or (kindIs "map" .) (kindIs "slice" .) -}}
{{- toJson . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- /* Environment variables for (list $ CONFIG): the settings, the database and the store. CONFIG has the settings of
     one component; they take precedence over .Values.config. */ -}}
{{- define "octet.env" -}}
{{- $root := index . 0 -}}
{{- range $name, $value := merge (dict) (index . 1 | default dict) $root.Values.config }}
- {name: OCTET_{{ upper $name }}, value: {{ include "octet.text" $value | quote }}}
{{- end }}
- {name: OCTET_GRACE_S, value: {{ $root.Values.drain.graceSeconds | quote }}}
- name: OCTET_DATABASE_URL
  valueFrom:
    secretKeyRef:
      {{- if $root.Values.database.secretName }}
      name: {{ $root.Values.database.secretName }}
      key: {{ $root.Values.database.secretKey }}
      {{- else }}
      name: {{ include "octet.fullname" $root }}-postgresql
      key: url
      {{- end }}
{{- with $root.Values.store.url }}
- {name: OCTET_STORE_URL, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := $root.Values.store.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{- /* The secrets of those who talk over HTTP; a compile worker has neither. */ -}}
{{- define "octet.keysEnv" -}}
- name: OCTET_CLUSTER_KEY
  valueFrom: {secretKeyRef: {name: {{ include "octet.secretName" . }}, key: cluster-key}}
- name: OCTET_ADMIN_KEY
  valueFrom: {secretKeyRef: {name: {{ include "octet.secretName" . }}, key: admin-key}}
{{- end -}}

{{- define "octet.envFrom" -}}
{{- with .Values.store.secretName }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- /* The head of every pod's spec. Links to Services would name variables: one called `octet` sets OCTET_PORT. */ -}}
{{- define "octet.pod" -}}
serviceAccountName: {{ include "octet.fullname" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "octet.securityContext" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Where (list $ PLACEMENT COMPONENT [POOL]) is run, spread over nodes. Pods that share a volume of one node are kept together. */ -}}
{{- define "octet.placement" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 -}}
{{- with $own.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- $apart := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $selector := include "octet.selector" (prepend (slice . 2) $root) | fromYaml -}}
{{- range $index, $constraint := ternary $own.topologySpreadConstraints (list $apart) (hasKey $own "topologySpreadConstraints") }}
{{- if not $index }}
topologySpreadConstraints:
{{- end }}
  - {{ merge (dict) $constraint (dict "labelSelector" (dict "matchLabels" $selector)) | toJson }}
{{- end }}
{{- if $own.affinity }}
affinity: {{ toJson $own.affinity }}
{{- else if and (not $root.Values.store.url) (eq $root.Values.store.volume.accessMode "ReadWriteOnce") }}
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ $root.Chart.Name }}
            app.kubernetes.io/instance: {{ $root.Release.Name }}
            octet/data: shared
{{- end }}
{{- end -}}

{{- /* Marks the pods that mount the shared volume. */ -}}
{{- define "octet.dataLabel" -}}
{{- if not .Values.store.url }}
octet/data: shared
{{- end }}
{{- end -}}

{{- define "octet.volumes" -}}
- name: data
  {{- if .Values.store.url }}
  {{- toYaml .Values.cacheVolume | nindent 2 }}
  {{- else }}
  persistentVolumeClaim: {claimName: {{ .Values.store.volume.existingClaim | default (printf "%s-data" (include "octet.fullname" .)) }}}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- end -}}

{{- define "octet.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- /* Ports, probes and the end of (list $ SCHEME): an endpoint is taken away while the process still takes requests. */ -}}
{{- define "octet.server" -}}
{{- $root := index . 0 -}}
{{- $scheme := index . 1 -}}
ports:
  - {name: http, containerPort: 8080}
  - {name: grpc, containerPort: 8081}
startupProbe:
  httpGet: {path: /v2/health/live, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
readinessProbe:
  httpGet: {path: /v2/health/ready, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /v2/health/live, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
lifecycle:
  preStop:
    exec: {command: [sleep, {{ $root.Values.drain.preStopSeconds | quote }}]}
{{- end -}}

{{- define "octet.patience" -}}
{{ add .Values.drain.preStopSeconds .Values.drain.graceSeconds 15 }}
{{- end -}}

{{- /* The Secret with the API's certificate; empty where it speaks plain HTTP. */ -}}
{{- define "octet.tlsSecret" -}}
{{- if .Values.api.tls.certManager.enabled -}}
{{ .Values.api.tls.secretName | default (printf "%s-tls" (include "octet.fullname" .)) }}
{{- else -}}
{{ .Values.api.tls.secretName }}
{{- end -}}
{{- end -}}

{{- /* The Secret with the certificate of workers; empty where they take requests in plain text. */ -}}
{{- define "octet.workerTlsSecret" -}}
{{- if .Values.workerTls.certManager.enabled -}}
{{ .Values.workerTls.secretName | default (printf "%s-worker-tls" (include "octet.fullname" .)) }}
{{- else -}}
{{ .Values.workerTls.secretName }}
{{- end -}}
{{- end -}}

{{- define "octet.scheme" -}}
{{ if include "octet.tlsSecret" . }}https{{ else }}http{{ end }}
{{- end -}}

{{- /* The targets of all pools, each once, as JSON. */ -}}
{{- define "octet.targets" -}}
{{- $targets := list -}}
{{- range .Values.pools }}{{ $targets = append $targets .target }}{{ end -}}
{{ $targets | uniq | toJson }}
{{- end -}}

{{- /* Variables of a job that is a client of the API. */ -}}
{{- define "octet.client" -}}
- {name: OCTET_SERVER, value: "{{ include "octet.scheme" . }}://{{ include "octet.fullname" . }}:8080"}
- name: OCTET_KEY
  valueFrom: {secretKeyRef: {name: {{ include "octet.secretName" . }}, key: admin-key}}
- {name: HOME, value: /tmp}
{{- if include "octet.tlsSecret" . }}
- {name: SSL_CERT_FILE, value: /tls/ca.crt}
{{- end }}
{{- end -}}

{{- /* By the version too: without a cluster Helm believes that there is everything. */ -}}
{{- define "octet.hasHpa" -}}
{{- if and (.Capabilities.APIVersions.Has "autoscaling/v2") (semverCompare ">=1.23-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
{{- end -}}

{{- define "octet.budget" -}}
{{- if and (.Capabilities.APIVersions.Has "policy/v1") (semverCompare ">=1.21-0" .Capabilities.KubeVersion.Version) -}}
policy/v1
{{- else -}}
policy/v1beta1
{{- end -}}
{{- end -}}
