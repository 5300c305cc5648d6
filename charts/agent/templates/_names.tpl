{{- define "shoal-agent.labels" -}}
app.kubernetes.io/name: shoal-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "shoal-agent.selector" -}}
app.kubernetes.io/name: shoal-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The agent's configuration file. The agent itself checks it and says what to write instead. */}}
{{- define "shoal-agent.config" -}}
{{- if not (or .Values.member.name .Values.regions .Values.kubeconfigSecrets) }}
{{- fail "set member.name, as printed by `shoalctl member join-token`; or regions, or kubeconfigSecrets" }}
{{- end }}
{{- if .Values.member.name }}
member:
  name: {{ .Values.member.name | quote }}
  {{- with .Values.member.region }}
  region: {{ . | quote }}
  {{- end }}
  {{- with .Values.member.country }}
  country: {{ . | quote }}
  {{- end }}
{{- end }}
hub:
  url: {{ required "set hub.url, as printed by `shoalctl member join-token`" .Values.hub.url | quote }}
  caPin: {{ required "set hub.caPin, as printed by `shoalctl member join-token`" .Values.hub.caPin | quote }}
providers:
  {{- if .Values.providers }}
  {{- toYaml .Values.providers | nindent 2 }}
  {{- else }}
  - name: default
    type: kubernetes
    kubernetes:
      image: {{ .Values.proxy.image | quote }}
      imagePullPolicy: {{ .Values.proxy.imagePullPolicy | quote }}
      exposure: {{ .Values.proxy.exposure | quote }}
      {{- if eq .Values.proxy.exposure "HostPort" }}
      hostPortRange: {{ .Values.proxy.hostPortRange | quote }}
      {{- end }}
      {{- range $key := list "nodeSelector" "uniqueExit" "resources" "tolerations" "imagePullSecrets" "priorityClassName" "podLabels" "podAnnotations" }}
      {{- with index $.Values.proxy $key }}
      {{ $key }}: {{ toJson . }}
      {{- end }}
      {{- end }}
  {{- end }}
{{- if .Values.kubeconfigSecrets }}
kubeconfigSecrets: true
{{- end }}
{{- if .Values.member.name }}
ceiling:
  clusterCIDRs: {{ required "set ceiling.clusterCIDRs: this cluster's pod, service and node ranges, such as {10.244.0.0/16,10.96.0.0/16}" .Values.ceiling.clusterCIDRs | toJson }}
  allowedCIDRs: {{ .Values.ceiling.allowedCIDRs | toJson }}
  ports: {{ .Values.ceiling.ports | toJson }}
  maxProxies: {{ .Values.ceiling.maxProxies | int }}
  maxProxySets: {{ .Values.ceiling.maxProxySets | int }}
  maxProbesPerSecond: {{ .Values.ceiling.maxProbesPerSecond | int }}
  cloudInit: {{ .Values.ceiling.cloudInit }}
  cloudInitSecrets: {{ .Values.ceiling.cloudInitSecrets | toJson }}
  nodeSelectorKeys: {{ .Values.ceiling.nodeSelectorKeys | toJson }}
{{- end }}
probe:
  targets: {{ required "set probe.targets: the address and port of the hub's echo listener, such as {203.0.113.7:443}" .Values.probe.targets | toJson }}
  {{- with .Values.probe.serverName }}
  serverName: {{ . | quote }}
  {{- end }}
  {{- with .Values.probe.ca }}
  ca: {{ toJson . }}
  {{- end }}
{{- end }}
