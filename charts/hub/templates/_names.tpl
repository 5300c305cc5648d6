{{- define "shoal-hub.labels" -}}
app.kubernetes.io/name: shoal-hub
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "shoal-hub.selector" -}}
app.kubernetes.io/name: shoal-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
