{{/*
What the backend's objects share. Three settings have to be known here although the program has defaults for them: they
bound the grace period and the roll-out. A test compares these numbers with the program's.
*/}}
{{- define "flexserv.backend.shutdownTimeout" -}}
{{- $value := .Values.backend.settings.shutdownTimeout -}}
{{- ternary 30 $value (kindIs "invalid" $value) -}}
{{- end -}}

{{- define "flexserv.backend.startupTimeout" -}}
{{- $value := .Values.backend.settings.startupTimeout -}}
{{- ternary 1800 $value (kindIs "invalid" $value) -}}
{{- end -}}

{{/* Seconds until a pod is ready at the latest: the process starts, then the models load. */}}
{{- define "flexserv.backend.startupBound" -}}
{{- $probe := .Values.backend.probes.startup -}}
{{- $startup := include "flexserv.backend.startupTimeout" . | float64 | ceil | int64 -}}
{{- add (mul $probe.periodSeconds $probe.failureThreshold) $startup -}}
{{- end -}}

{{/* The user's settings with the two that follow from the operator, and what belongs to the chart. */}}
{{- define "flexserv.backend.settings" -}}
{{- $settings := deepCopy .Values.backend.settings -}}
{{- if .Values.operator.enabled -}}
{{- if kindIs "invalid" $settings.onDemand -}}{{- $_ := set $settings "onDemand" "declared" -}}{{- end -}}
{{- if kindIs "invalid" $settings.readyAfterSync -}}{{- $_ := set $settings "readyAfterSync" true -}}{{- end -}}
{{- end -}}
{{- $_ := set $settings "host" "0.0.0.0" -}}
{{- $_ := set $settings "port" .Values.backend.containerPort -}}
{{- $_ := set $settings "stateDir" "/state" -}}
{{- if not .Values.backend.cache.existingClaim -}}
{{- $_ := set $settings "cacheLimitBytes" (include "flexserv.bytes" .Values.backend.cache.size) -}}
{{- end -}}
{{- if .Values.backend.auth.token.secretName -}}
{{- $_ := set $settings "flexservTokenFile" "/run/secrets/flexserv/token" -}}
{{- end -}}
{{- if .Values.backend.auth.adminToken.secretName -}}
{{- $_ := set $settings "adminTokenFile" "/run/secrets/flexserv/admin-token" -}}
{{- end -}}
{{ toYaml $settings }}
{{- end -}}

{{- define "flexserv.backend.env" -}}
{{- include "flexserv.settingsEnv" (dict "prefix" "FLEXSERV" "settings" (include "flexserv.backend.settings" . | fromYaml)) }}
- name: FLEXSERV_POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
# Everything that libraries write goes to volumes: the root file system is read-only.
- name: HOME
  value: /tmp
- name: HF_HOME
  value: /cache/huggingface
- name: XDG_CACHE_HOME
  value: /scratch/xdg
- name: TRITON_CACHE_DIR
  value: /scratch/triton
- name: TORCHINDUCTOR_CACHE_DIR
  value: /scratch/torchinductor
- name: MPLCONFIGDIR
  value: /scratch/matplotlib
{{- with .Values.backend.huggingFace }}
{{- if .endpoint }}
- name: HF_ENDPOINT
  value: {{ .endpoint | quote }}
{{- end }}
{{- if .offline }}
- name: HF_HUB_OFFLINE
  value: "1"
{{- end }}
{{- if .tokenSecretName }}
- name: HF_TOKEN_PATH
  value: /run/secrets/flexserv/hugging-face-token
{{- end }}
{{- end }}
{{- if eq (int .Values.backend.gpu.count) 0 }}
# Where NVIDIA's runtime is the node's default, a pod that asks for no GPU would still see all of them.
- name: NVIDIA_VISIBLE_DEVICES
  value: void
{{- end }}
{{- if dig "limits" "cpu" "" .Values.backend.resources }}
# One thread per CPU of the limit; without it the libraries count the node's CPUs, and throttle.
{{- range list "OMP_NUM_THREADS" "MKL_NUM_THREADS" "OPENBLAS_NUM_THREADS" "RAYON_NUM_THREADS" }}
- name: {{ . }}
  valueFrom:
    resourceFieldRef:
      containerName: backend
      resource: limits.cpu
{{- end }}
{{- end }}
{{- end -}}

{{/* The tokens that the values name, as files in one folder. */}}
{{- define "flexserv.backend.tokenSources" -}}
{{- $auth := .Values.backend.auth -}}
{{- with $auth.token }}
{{- if .secretName }}
- secret:
    name: {{ .secretName }}
    items:
      - key: {{ .secretKey }}
        path: token
{{- end }}
{{- end }}
{{- with $auth.adminToken }}
{{- if .secretName }}
- secret:
    name: {{ .secretName }}
    items:
      - key: {{ .secretKey }}
        path: admin-token
{{- end }}
{{- end }}
{{- end -}}

{{/* All Secrets of the backend: the tokens, and the one for the hub. */}}
{{- define "flexserv.backend.secretSources" -}}
{{- include "flexserv.backend.tokenSources" . }}
{{- with .Values.backend.huggingFace }}
{{- if .tokenSecretName }}
- secret:
    name: {{ .tokenSecretName }}
    items:
      - key: {{ .tokenSecretKey }}
        path: hugging-face-token
{{- end }}
{{- end }}
{{- end -}}

{{/* What the volumes on the node's disk may hold together, and 256 MiB for the container's log, in MiB. */}}
{{- define "flexserv.backend.ephemeralStorage" -}}
{{- $bytes := list .Values.backend.scratchSize .Values.backend.tmpSize "16Mi" "256Mi" -}}
{{- if not (include "flexserv.backend.cacheClaim" .) -}}
{{- $bytes = append $bytes .Values.backend.cache.size -}}
{{- end -}}
{{- $sum := 0 -}}
{{- range $bytes -}}{{- $sum = add $sum (include "flexserv.bytes" . | int64) -}}{{- end -}}
{{- printf "%dMi" (divf $sum 1048576 | ceil | int64) -}}
{{- end -}}

{{- define "flexserv.backend.resources" -}}
{{- $resources := deepCopy .Values.backend.resources -}}
{{- if not (or (dig "requests" "ephemeral-storage" "" $resources) (dig "limits" "ephemeral-storage" "" $resources)) -}}
{{- $storage := dict "ephemeral-storage" (include "flexserv.backend.ephemeralStorage" .) -}}
{{- $_ := set $resources "requests" (merge (deepCopy $storage) (default dict $resources.requests)) -}}
{{- $_ := set $resources "limits" (merge $storage (default dict $resources.limits)) -}}
{{- end -}}
{{- with .Values.backend.gpu -}}
{{- if gt (int .count) 0 -}}
{{- $_ := set $resources "limits" (merge (dict .resourceName (int .count)) (default dict $resources.limits)) -}}
{{- end -}}
{{- end -}}
{{ toYaml $resources }}
{{- end -}}

{{/* The claim that holds the cache; empty where an emptyDir does. */}}
{{- define "flexserv.backend.cacheClaim" -}}
{{- $cache := .Values.backend.cache -}}
{{- if $cache.existingClaim -}}
{{- $cache.existingClaim -}}
{{- else if $cache.persistent -}}
{{- include "flexserv.componentName" (dict "context" . "component" "cache") -}}
{{- end -}}
{{- end -}}

{{/* How many pods there may be; where somebody else scales, more than one. */}}
{{- define "flexserv.backend.mostReplicas" -}}
{{- if .Values.backend.autoscaling.enabled -}}
{{- .Values.backend.autoscaling.maxReplicas -}}
{{- else -}}
{{- ternary 2 .Values.backend.replicas (kindIs "invalid" .Values.backend.replicas) -}}
{{- end -}}
{{- end -}}

{{/* True where one pod alone can mount the cache. */}}
{{- define "flexserv.backend.cacheForOne" -}}
{{- if and (include "flexserv.backend.cacheClaim" .) (ne .Values.backend.cache.accessMode "ReadWriteMany") -}}true{{- end -}}
{{- end -}}

{{- define "flexserv.backend.strategy" -}}
{{- $lone := le (include "flexserv.backend.mostReplicas" . | int) 1 -}}
{{- $once := include "flexserv.backend.cacheForOne" . -}}
{{- if .Values.backend.updateStrategy -}}
{{ toYaml .Values.backend.updateStrategy }}
{{- else if or $lone $once -}}
type: Recreate
{{- else -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 0
  maxUnavailable: 1
{{- end -}}
{{- end -}}

{{/* The constraints of the values; one that does not say which pods it counts, counts the backend's. */}}
{{- define "flexserv.backend.topologySpread" -}}
{{- $own := include "flexserv.selectorLabels" (dict "context" . "component" "backend") | fromYaml -}}
{{- range .Values.backend.topologySpreadConstraints }}
- {{ toYaml (merge (deepCopy .) (ternary dict (dict "labelSelector" (dict "matchLabels" $own)) (hasKey . "labelSelector"))) | nindent 2 | trim }}
{{- end }}
{{- end -}}
