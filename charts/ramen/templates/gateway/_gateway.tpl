{{- define "ramen.gateway.name" -}}
{{ include "ramen.fullname" . }}-gateway
{{- end }}

{{- define "ramen.gateway.namespace" -}}
{{- default .Release.Namespace .Values.gateway.namespace }}
{{- end }}

{{- /* Workers let in pods by name and component: never other labels. */ -}}
{{- define "ramen.gateway.selector" -}}
app.kubernetes.io/name: ramen
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "ramen.gateway.labels" -}}
{{ include "ramen.gateway.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ramen.gateway.account" -}}
{{- if .Values.gateway.serviceAccount.create }}
{{- default (include "ramen.gateway.name" .) .Values.gateway.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.gateway.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* The port's name says what is spoken there. */ -}}
{{- define "ramen.gateway.port" -}}
{{ if .Values.gateway.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{- define "ramen.gateway.servicePort" -}}
{{ if .Values.gateway.tls.secretName }}443{{ else }}80{{ end }}
{{- end }}

{{- /* Where pods reach it: by name, or by its fixed address. */ -}}
{{- define "ramen.gateway.host" -}}
{{- $address := .Values.services.gateway.clusterIP }}
{{- if contains ":" $address }}{{ printf "[%s]" $address }}
{{- else if $address }}{{ $address }}
{{- else }}{{ printf "%s.%s.svc" (include "ramen.gateway.name" .) (include "ramen.gateway.namespace" .) }}
{{- end }}
{{- end }}
