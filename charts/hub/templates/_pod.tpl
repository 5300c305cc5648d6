{{/* What a hub runs as: the template of its pod. */}}
{{- define "shoal-hub.pod" -}}
metadata:
  labels: {{- include "shoal-hub.labels" . | nindent 4 }}
spec:
  serviceAccountName: shoal-hub
  enableServiceLinks: false
  terminationGracePeriodSeconds: 30
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: hub
      image: {{ .Values.image }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      args:
        {{- range .Values.names }}
        - --san={{ . }}
        {{- end }}
        - --san=shoal-hub.{{ .Release.Namespace }}.svc
        - --leader-elect
        - --leader-lease={{ .Values.leaderLease | default (ternary "6s" "15s" (eq .Values.journal.type "valkey")) }}
        - --log-level={{ .Values.logLevel }}
        - --journal={{ .Values.journal.type }}
        {{- if eq .Values.journal.type "disk" }}
        - --journal-dir=/var/lib/shoal-hub/journal
        {{- end }}
        {{- if eq .Values.journal.type "valkey" }}
        {{- include "shoal-hub.valkey" .Values.journal.valkey | nindent 8 }}
        {{- end }}
        {{- if .Values.leases.certificateSecret }}
        - --leases-cert-file=/etc/shoal-hub/leases/tls.crt
        - --leases-key-file=/etc/shoal-hub/leases/tls.key
        {{- end }}
        {{- with .Values.audit.log }}
        - --audit-log={{ . }}
        {{- end }}
        {{- if .Values.quotas }}
        - --quota-file=/etc/shoal-hub/quotas/quotas.yaml
        {{- end }}
      {{- if eq .Values.journal.type "valkey" }}
      env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      {{- end }}
      ports:
        - {name: agents, containerPort: 8443}
        - {name: leases, containerPort: 8444}
        - name: echo
          containerPort: 8445
          {{- if .Values.echo.hostPort }}
          hostPort: {{ .Values.echo.hostPort }}
          {{- end }}
        - {name: health, containerPort: 8080}
      readinessProbe:
        httpGet: {path: /readyz, port: health}
        periodSeconds: 1
        failureThreshold: 3
      livenessProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 10
        failureThreshold: 6
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      {{- $valkey := dict }}
      {{- if eq .Values.journal.type "valkey" }}
      {{- $valkey = .Values.journal.valkey }}
      {{- end }}
      {{- $secrets := dict "leases-certificate" .Values.leases.certificateSecret "valkey-password" $valkey.passwordSecret "valkey-ca" $valkey.caSecret "valkey-certificate" $valkey.certificateSecret }}
      {{- $paths := dict "leases-certificate" "leases" "valkey-password" "valkey/password" "valkey-ca" "valkey/ca" "valkey-certificate" "valkey/certificate" }}
      {{- $mounted := compact (values $secrets) }}
      {{- if or $mounted .Values.quotas (eq .Values.journal.type "disk") }}
      volumeMounts:
        {{- range $name, $secret := $secrets }}
        {{- if $secret }}
        - {name: {{ $name }}, mountPath: /etc/shoal-hub/{{ get $paths $name }}, readOnly: true}
        {{- end }}
        {{- end }}
        {{- if .Values.quotas }}
        - {name: quotas, mountPath: /etc/shoal-hub/quotas, readOnly: true}
        {{- end }}
        {{- if eq .Values.journal.type "disk" }}
        - {name: journal, mountPath: /var/lib/shoal-hub}
        {{- end }}
      {{- end }}
  {{- if or $mounted .Values.quotas }}
  volumes:
    {{- range $name, $secret := $secrets }}
    {{- if $secret }}
    - name: {{ $name }}
      secret: {secretName: {{ $secret }}}
    {{- end }}
    {{- end }}
    {{- if .Values.quotas }}
    - name: quotas
      configMap: {name: shoal-hub-quotas}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{/* Where the journal's server is: arguments of a hub. */}}
{{- define "shoal-hub.valkey" -}}
- --journal-valkey-prefix={{ .prefix }}
{{- range .addresses }}
- --journal-valkey-address={{ . }}
{{- end }}
{{- with .sentinel }}
- --journal-valkey-sentinel={{ . }}
{{- end }}
{{- if .tls }}
- --journal-valkey-tls
{{- end }}
{{- with .username }}
- --journal-valkey-username={{ . }}
{{- end }}
{{- if .passwordSecret }}
- --journal-valkey-password-file=/etc/shoal-hub/valkey/password/password
{{- end }}
{{- if .caSecret }}
- --journal-valkey-ca-file=/etc/shoal-hub/valkey/ca/ca.crt
{{- end }}
{{- if .certificateSecret }}
- --journal-valkey-cert-file=/etc/shoal-hub/valkey/certificate/tls.crt
- --journal-valkey-key-file=/etc/shoal-hub/valkey/certificate/tls.key
{{- end }}
{{- if .everysec }}
- --journal-valkey-everysec
{{- end }}
{{- if .unchecked }}
- --journal-valkey-unchecked
{{- end }}
{{- end }}
