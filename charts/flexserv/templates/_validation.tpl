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

{{- if and (gt (int $backend.replicas) 1) (include "flexserv.backend.cacheClaim" .) (ne $backend.cache.accessMode "ReadWriteMany") -}}
{{- fail (printf "backend.replicas is %v, but the cache's claim (backend.cache.accessMode %s) can be mounted for one pod only: use a ReadWriteMany claim and say so in backend.cache.accessMode, or an emptyDir (backend.cache.persistent=false, backend.cache.existingClaim empty)" (int $backend.replicas) $backend.cache.accessMode) -}}
{{- end -}}

{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled are both true, and every pod would be scraped twice: enable one of them" -}}
{{- end -}}

{{- end -}}
