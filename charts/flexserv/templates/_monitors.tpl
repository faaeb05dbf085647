{{/* What a ServiceMonitor and a PodMonitor say alike: (dict "context" $ "component" "backend" "monitor" VALUES "port" "http"). */}}
{{- define "flexserv.monitorMetadata" -}}
name: {{ include "flexserv.componentName" . }}
namespace: {{ .context.Release.Namespace }}
labels:
  {{- merge (include "flexserv.labels" . | fromYaml) .monitor.labels | toYaml | nindent 2 }}
{{- end -}}

{{- define "flexserv.monitorEndpoint" -}}
- port: {{ .port }}
  path: /metrics
  {{- with .monitor.interval }}
  interval: {{ . }}
  {{- end }}
  {{- with .monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- with .monitor.relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .monitor.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "flexserv.monitorSelector" -}}
selector:
  matchLabels:
    {{- include "flexserv.selectorLabels" . | nindent 4 }}
namespaceSelector:
  matchNames: [{{ .context.Release.Namespace }}]
{{- end -}}
