{{/* A value as a program reads it: whole numbers without exponent, booleans as true and false, mappings as JSON. */}}
{{- define "flexserv.scalar" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- int64 . -}}
{{- else if kindIs "map" . -}}
{{- toJson . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* A quantity such as 50Gi as a whole number of bytes. */}}
{{- define "flexserv.bytes" -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "E" 1000000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (regexFind "^[0-9.]+" .) (get $factors (regexFind "[A-Za-z]*$" .)) | int64 -}}
{{- end -}}

{{/*
One variable per setting: (dict "prefix" "FLEXSERV" "settings" (dict "modelTimeout" 0)).
null is left out; false and 0 are values.
*/}}
{{- define "flexserv.settingsEnv" -}}
{{- range $name, $value := .settings }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ printf "%s_%s" $.prefix (snakecase $name | upper) }}
  value: {{ include "flexserv.scalar" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The chart's own variables without those that the user sets, then the user's: (dict "own" YAML "extra" LIST). */}}
{{- define "flexserv.mergedEnv" -}}
{{- $taken := dict -}}
{{- range .extra -}}{{- $_ := set $taken .name true -}}{{- end -}}
{{- $env := list -}}
{{- range (fromYamlArray .own) -}}
{{- if not (hasKey $taken .name) -}}{{- $env = append $env . -}}{{- end -}}
{{- end -}}
{{ toYaml (concat $env .extra) }}
{{- end -}}

{{/*
Annotations of a pod, the user's over ours: (dict "context" $ "component" "backend" "port" 8001). It is scraped once at
most: a monitor takes the place of prometheus.io annotations. `kubectl logs` takes the default container of several.
*/}}
{{- define "flexserv.podAnnotations" -}}
{{- $metrics := .context.Values.metrics -}}
{{- $own := dict "kubectl.kubernetes.io/default-container" .component -}}
{{- if and $metrics.scrapeAnnotations (not $metrics.serviceMonitor.enabled) (not $metrics.podMonitor.enabled) -}}
{{- $_ := set $own "prometheus.io/scrape" "true" -}}
{{- $_ := set $own "prometheus.io/path" "/metrics" -}}
{{- $_ := set $own "prometheus.io/port" (toString .port) -}}
{{- end -}}
{{ toYaml (merge dict (get .context.Values .component).podAnnotations $own) }}
{{- end -}}
