{{/*
Which series are this release's own: (dict "context" $ "component" "backend"). The monitors give every series the
namespace, and the job after the Service or the PodMonitor.
*/}}
{{- define "flexserv.alerts.selector" -}}
{{- $metrics := .context.Values.metrics -}}
{{- $job := get $metrics.prometheusRule.jobs .component -}}
{{- $namespace := .context.Release.Namespace -}}
{{- if $job -}}
job="{{ $job }}"
{{- else if $metrics.podMonitor.enabled -}}
namespace="{{ $namespace }}",job="{{ $namespace }}/{{ include "flexserv.componentName" . }}"
{{- else if eq .component "backend" -}}
namespace="{{ $namespace }}",job="{{ include "flexserv.serviceName" .context }}"
{{- else -}}
namespace="{{ $namespace }}",job="{{ include "flexserv.componentName" . }}"
{{- end -}}
{{- end -}}

{{/*
The labels of one alert. The namespace is named, because what is absent has none: (dict "context" $ "level" "page").
*/}}
{{- define "flexserv.alerts.labels" -}}
{{- $rule := .context.Values.metrics.prometheusRule -}}
{{ toYaml (merge (dict "severity" (get $rule.severity .level) "namespace" .context.Release.Namespace "flexserv_release" .context.Release.Name) $rule.alertLabels) }}
{{- end -}}

{{/* One more annotation, on a line of its own: where to read what to do. Without an address it is left out, for a link to nowhere costs time: (dict "context" $ "alert" "FlexServBackendDown"). */}}
{{- define "flexserv.alerts.runbook" -}}
{{- with .context.Values.metrics.prometheusRule.runbookUrl -}}
{{- printf "runbook_url: %s" (printf "%s#%s" . (lower $.alert) | quote) | nindent 12 -}}
{{- end -}}
{{- end -}}

{{/* Without a monitor nobody knows which jobs the alerts are about. */}}
{{- define "flexserv.alerts.validate" -}}
{{- $metrics := .Values.metrics -}}
{{- if not (or $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled) -}}
{{- if or (not $metrics.prometheusRule.jobs.backend) (and .Values.operator.enabled (not $metrics.prometheusRule.jobs.operator)) -}}
{{- fail "metrics.prometheusRule.enabled is true and no monitor is: enable metrics.serviceMonitor or metrics.podMonitor, or name the scrape jobs of both programs in metrics.prometheusRule.jobs" -}}
{{- end -}}
{{- end -}}
{{- end -}}
