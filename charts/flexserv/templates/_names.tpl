{{/*
Names and labels. A component ("backend", "operator", "test") is passed as
(dict "context" $ "component" "backend").
*/}}

{{- define "flexserv.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters leave room for "-operator" and what controllers append. */}}
{{- define "flexserv.fullname" -}}
{{- $name := include "flexserv.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "flexserv.componentName" -}}
{{- printf "%s-%s" (include "flexserv.fullname" .context) .component -}}
{{- end -}}

{{/* The Service is what clients and `backendRef` name: it has the plain name. */}}
{{- define "flexserv.serviceName" -}}
{{- include "flexserv.fullname" . -}}
{{- end -}}

{{/* Selectors are immutable in a Deployment: nothing that moves with a version may enter. */}}
{{- define "flexserv.selectorLabels" -}}
app.kubernetes.io/name: {{ include "flexserv.name" .context }}
app.kubernetes.io/instance: {{ .context.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "flexserv.labels" -}}
{{- $own := include "flexserv.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "flexserv" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .context.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/version" .context.Chart.AppVersion -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .context.Chart.Name .context.Chart.Version | replace "+" "_") -}}
{{ toYaml (merge $own .context.Values.commonLabels) }}
{{- end -}}

{{/* Labels of a pod: no versions, which would restart pods that nothing else changed in. */}}
{{- define "flexserv.podLabels" -}}
{{- $own := include "flexserv.selectorLabels" . | fromYaml -}}
{{- $more := get .context.Values .component | dig "podLabels" dict -}}
{{ toYaml (merge $own $more .context.Values.commonLabels) }}
{{- end -}}

{{- define "flexserv.serviceAccountName" -}}
{{- $account := get (get .context.Values .component) "serviceAccount" -}}
{{- default (ternary (include "flexserv.componentName" .) "default" $account.create) $account.name -}}
{{- end -}}

{{- define "flexserv.image" -}}
{{- $image := get (get .context.Values .component) "image" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .context.Chart.AppVersion $image.tag | include "flexserv.scalar") -}}
{{- end -}}
{{- end -}}
