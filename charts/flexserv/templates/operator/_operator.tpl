{{/*
The operator sends the admin token where there is one, else the clients' token, which then guards every route it uses.
*/}}
{{- define "flexserv.operator.tokenSecret" -}}
{{- $auth := .Values.backend.auth -}}
{{- $secret := ternary $auth.adminToken $auth.token (ne $auth.adminToken.secretName "") -}}
{{- if $secret.secretName -}}
secretName: {{ $secret.secretName }}
defaultMode: 0440
items:
  - key: {{ $secret.secretKey }}
    path: token
{{- end -}}
{{- end -}}

{{- define "flexserv.operator.env" -}}
{{- $settings := pick .Values.operator "adoptUnreferenced" "sharedCache" "tickSeconds" "pollTimeoutSeconds" "logLevel" "logFormat" -}}
{{- if and (kindIs "invalid" .Values.operator.sharedCache) (include "flexserv.backend.cacheClaim" .) (eq .Values.backend.cache.accessMode "ReadWriteMany") -}}
{{- $_ := set $settings "sharedCache" true -}}
{{- end -}}
{{- $_ := set $settings "backendService" (include "flexserv.serviceName" .) -}}
{{- $_ := set $settings "healthPort" 8080 -}}
{{- $_ := set $settings "metricsPort" 9090 -}}
{{- if include "flexserv.operator.tokenSecret" . -}}
{{- $_ := set $settings "adminTokenFile" "/run/secrets/flexserv/token" -}}
{{- end -}}
{{- include "flexserv.settingsEnv" (dict "prefix" "FLEXSERV_OPERATOR" "settings" $settings) }}
- name: FLEXSERV_OPERATOR_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
# Libraries look for files in the home folder, and the image's own is closed to this user.
- name: HOME
  value: /tmp
{{- end -}}

{{/* The operators of other releases in this namespace that adopt models without a backend, as far as a cluster can be asked. */}}
{{- define "flexserv.operator.otherAdopters" -}}
{{- $names := list -}}
{{- if and .Values.operator.enabled (ne (toString .Values.operator.adoptUnreferenced) "false") -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $ours := eq (get $labels "app.kubernetes.io/instance") $.Release.Name -}}
{{- if and (not $ours) (eq (get $labels "app.kubernetes.io/part-of") "flexserv") (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- $adopts := true -}}
{{- range (first .spec.template.spec.containers).env -}}
{{- if and (eq .name "FLEXSERV_OPERATOR_ADOPT_UNREFERENCED") (eq (toString .value) "false") -}}{{- $adopts = false -}}{{- end -}}
{{- end -}}
{{- if $adopts -}}{{- $names = append $names .metadata.name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join ", " $names -}}
{{- end -}}
