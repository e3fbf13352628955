{{- /* Names and labels that several files use. */ -}}
{{- define "mycroft.name" -}}
{{- if contains "mycroft" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-mycroft" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "mycroft.selector" -}}
app.kubernetes.io/name: mycroft
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mycroft.labels" -}}
{{ include "mycroft.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mycroft.secret" -}}
{{ .Values.token.existingSecret | default (include "mycroft.name" .) }}
{{- end }}

{{- define "mycroft.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "mycroft.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "mycroft.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "mycroft.tlsname" -}}
{{ .Values.tls.name | default (printf "%s.%s.svc" (include "mycroft.name" .) .Release.Namespace) }}
{{- end }}
