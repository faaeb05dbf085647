{{/*
Values that are right one by one and wrong together. Each message names the values and what to do.
*/}}
{{- define "flexserv.validate" -}}
{{- $backend := .Values.backend -}}

{{- $drain := include "flexserv.backend.shutdownTimeout" . | float64 -}}
{{- $needed := addf $drain $backend.preStopSleepSeconds -}}
{{- if le (float64 $backend.terminationGracePeriodSeconds) $needed -}}
{{- fail (printf "backend.terminationGracePeriodSeconds (%v) must be greater than backend.preStopSleepSeconds (%v) + backend.settings.shutdownTimeout (%v): set it to %v or more" $backend.terminationGracePeriodSeconds $backend.preStopSleepSeconds $drain (add (int64 (ceil $needed)) 5)) -}}
{{- end -}}

{{- $window := mul $backend.probes.liveness.periodSeconds $backend.probes.liveness.failureThreshold -}}
{{- if lt $window 120 -}}
{{- fail (printf "backend.probes.liveness: periodSeconds x failureThreshold is %v seconds; below 120 a backend that is only busy would be restarted: raise one of the two" $window) -}}
{{- end -}}

{{- $deadline := $backend.progressDeadlineSeconds -}}
{{- $bound := include "flexserv.backend.startupBound" . | int64 -}}
{{- if and (not (kindIs "invalid" $deadline)) (le (int64 $deadline) $bound) -}}
{{- fail (printf "backend.progressDeadlineSeconds (%v) must be greater than %v, the seconds that backend.probes.startup and backend.settings.startupTimeout allow a pod to start: raise it, or leave it null" (int64 $deadline) $bound) -}}
{{- end -}}

{{- $scaling := $backend.autoscaling -}}
{{- if and $scaling.enabled (lt (int $scaling.maxReplicas) (int $scaling.minReplicas)) -}}
{{- fail (printf "backend.autoscaling.maxReplicas (%v) must not be less than backend.autoscaling.minReplicas (%v)" (int $scaling.maxReplicas) (int $scaling.minReplicas)) -}}
{{- end -}}

{{- range $setting := list "defaultModel" "defaultEmbeddingModel" -}}
{{- $forced := printf "force%s" (title $setting) -}}
{{- if and (get $backend.settings $forced) (not (get $backend.settings $setting)) -}}
{{- fail (printf "backend.settings.%s is true and backend.settings.%s names no model: name one, or leave backend.settings.%s out" $forced $setting $forced) -}}
{{- end -}}
{{- end -}}

{{- if and $backend.service.nodePort (eq $backend.service.type "ClusterIP") -}}
{{- fail (printf "backend.service.nodePort is %v and backend.service.type is ClusterIP, which has no node port: set the type to NodePort or LoadBalancer, or leave the port out" (int $backend.service.nodePort)) -}}
{{- end -}}

{{- if and $backend.ingress.enabled (not $backend.ingress.hosts) -}}
{{- fail "backend.ingress.enabled is true and backend.ingress.hosts is empty: name at least one host" -}}
{{- end -}}

{{- $disk := dig "limits" "ephemeral-storage" "" $backend.resources | toString -}}
{{- if and (regexMatch "^[0-9.]+([kMGTPE]i?|Ki)?$" $disk) (not (include "flexserv.backend.cacheClaim" .)) -}}
{{- if lt (include "flexserv.bytes" $disk | int64) (include "flexserv.bytes" $backend.cache.size | int64) -}}
{{- fail (printf "backend.resources.limits.ephemeral-storage (%s) is less than backend.cache.size (%s): the pod would be evicted before its cache is full; raise the one or lower the other" $disk $backend.cache.size) -}}
{{- end -}}
{{- end -}}

{{- $replicas := "" -}}
{{- if $scaling.enabled -}}
{{- $replicas = printf "backend.autoscaling.maxReplicas is %v" (int $scaling.maxReplicas) -}}
{{- else if kindIs "invalid" $backend.replicas -}}
{{- $replicas = "backend.replicas is null, so that somebody else may start several pods" -}}
{{- else -}}
{{- $replicas = printf "backend.replicas is %v" (int $backend.replicas) -}}
{{- end -}}
{{- if and (gt (include "flexserv.backend.mostReplicas" . | int) 1) (include "flexserv.backend.cacheForOne" .) -}}
{{- fail (printf "%s, but the cache's claim (backend.cache.accessMode %s) can be mounted for one pod only: use a ReadWriteMany claim and say so in backend.cache.accessMode, or an emptyDir (backend.cache.persistent=false, backend.cache.existingClaim empty)" $replicas $backend.cache.accessMode) -}}
{{- end -}}

{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled are both true, and every pod would be scraped twice: enable one of them" -}}
{{- end -}}

{{- end -}}
