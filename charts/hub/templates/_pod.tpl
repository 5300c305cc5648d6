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
        - --leader-lease={{ .Values.leaderLease }}
        - --log-level={{ .Values.logLevel }}
        - --journal={{ .Values.journal.type }}
        {{- if eq .Values.journal.type "disk" }}
        - --journal-dir=/var/lib/shoal-hub/journal
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
      {{- if or .Values.leases.certificateSecret .Values.quotas (eq .Values.journal.type "disk") }}
      volumeMounts:
        {{- if .Values.leases.certificateSecret }}
        - {name: leases-certificate, mountPath: /etc/shoal-hub/leases, readOnly: true}
        {{- end }}
        {{- if .Values.quotas }}
        - {name: quotas, mountPath: /etc/shoal-hub/quotas, readOnly: true}
        {{- end }}
        {{- if eq .Values.journal.type "disk" }}
        - {name: journal, mountPath: /var/lib/shoal-hub}
        {{- end }}
      {{- end }}
  {{- if or .Values.leases.certificateSecret .Values.quotas }}
  volumes:
    {{- if .Values.leases.certificateSecret }}
    - name: leases-certificate
      secret: {secretName: {{ .Values.leases.certificateSecret }}}
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
