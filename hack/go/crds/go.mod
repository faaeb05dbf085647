module flexserv/hack/crds

go 1.26.0

// Nothing is built from these: they carry the CRDs that the chart's examples are checked against.
require (
	github.com/kedacore/keda/v2 v2.21.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.4.0
)
