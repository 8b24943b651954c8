{{- define "talos-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "talos-operator.selector" -}}
app.kubernetes.io/name: talos-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "talos-operator.labels" -}}
{{ include "talos-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "talos-operator.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "talos-operator.fullname" . }}-controller-manager
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- define "talos-operator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "talos-operator.args" -}}
- manager
{{- with .Values.watchNamespaces }}
- --namespaces={{ join "," . }}
{{- end }}
{{- if not .Values.leaderElection.enabled }}
- --leader-elect=false
{{- end }}
{{- if gt (int .Values.shards) 1 }}
- --shards={{ .Values.shards }}
{{- end }}
{{- if not .Values.metrics.enabled }}
- --metrics-bind-address=0
{{- end }}
{{- with .Values.allow.stores }}
- --allow-stores={{ join "," . }}
{{- end }}
{{- with .Values.allow.recipients }}
- --allow-recipients={{ join "," . }}
{{- end }}
{{- with .Values.allow.ownCredentials }}
- --allow-own-credentials={{ join "," . }}
{{- end }}
{{- with .Values.allow.webhooks }}
- --allowed-webhooks={{ join "," . }}
{{- end }}
{{- with .Values.allow.endpoints }}
- --allowed-endpoints={{ join "," . }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "talos-operator.metricsPort" -}}
{{- ternary 8443 8080 .Values.metrics.secure -}}
{{- end -}}

{{- define "talos-operator.metricsCertificate" -}}
{{- if and .Values.metrics.enabled .Values.metrics.secure -}}
{{- .Values.metrics.certificateSecret -}}
{{- end -}}
{{- end -}}
