"""A value that cannot be meant is refused when the chart is rendered, by the name of the value."""

from typing import Any

import pytest

from tests.support.chart import CHART, ChartRefused, helm, nested, render


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("backnd", {}, "'backnd'"),
        ("backend.settings.oomRamTreshold", 80, "/backend/settings': additional properties 'oomRamTreshold'"),
        ("backend.settings.host", "127.0.0.1", "'host'"),
        ("backend.settings.flexservToken", "secret", "'flexservToken'"),
        ("backend.gpus", 1, "'gpus'"),
        ("backend.auth.token.value", "secret", "'value'"),
        ("operator.replicas", 2, "'replicas'"),
        ("metrics.serviceMonitor.lables", {}, "'lables'"),
        ("backend.settings.oomRamThreshold", 101, "/backend/settings/oomRamThreshold': maximum"),
        ("backend.settings.oomVramThreshold", -1, "/backend/settings/oomVramThreshold': minimum"),
        ("backend.settings.oomRamThreshold", "90", "/backend/settings/oomRamThreshold': got string"),
        ("backend.settings.oomMonitor", "yes", "/backend/settings/oomMonitor': got string"),
        ("backend.settings.modelTimeout", "1h", "/backend/settings/modelTimeout': got string"),
        ("backend.settings.maxQueue", 1.5, "/backend/settings/maxQueue': got number"),
        ("backend.settings.quantization", "int3", "/backend/settings/quantization'"),
        ("backend.settings.defaultModel", "", "/backend/settings/defaultModel': minLength"),
        ("backend.gpu.count", -1, "/backend/gpu/count': minimum"),
        ("backend.gpu.count", "1", "/backend/gpu/count': got string"),
        ("backend.gpu.resourceName", "gpu", "/backend/gpu/resourceName'"),
        ("backend.resources.limits", None, "/backend/resources/limits': got null"),
        ("backend.resources.limits.memory", "24 Gi", "/backend/resources/limits/memory'"),
        ("backend.resources.requests.cpu", "two", "/backend/resources/requests/cpu'"),
        ("operator.resources.limits.memory", "256MB", "/operator/resources/limits/memory'"),
        ("operator.resources.requests.cpu", -1, "/operator/resources/requests/cpu': minimum"),
        ("backend.containerPort", None, "/backend': missing property 'containerPort'"),
        ("backend.autoscaling.minReplicas", 0, "/backend/autoscaling/minReplicas': minimum"),
        ("backend.autoscaling.metrics", [], "/backend/autoscaling/metrics': minItems"),
        ("backend.podDisruptionBudget.maxUnavailable", 0, "/backend/podDisruptionBudget/maxUnavailable'"),
        ("backend.ingress.hosts", ["https://llm"], "/backend/ingress/hosts/0'"),
        ("backend.ingress.paths", ["/"], "'paths'"),
        ("backend.service.ipFamilies", ["IPv5"], "/backend/service/ipFamilies/0'"),
        ("backend.scratchSize", "5 Gi", "/backend/scratchSize'"),
        ("backend.image.digest", "sha256:abc", "/backend/image/digest'"),
        ("backend.image.pullPolicy", "Sometimes", "/backend/image/pullPolicy'"),
        ("backend.models.mountPath", "/state", "/backend/models/mountPath'"),
        ("backend.cache.size", "50 GB", "/backend/cache/size'"),
        ("backend.huggingFace.endpoint", "hub.example.com", "/backend/huggingFace/endpoint'"),
        ("backend.service.port", 0, "/backend/service/port': minimum"),
        ("backend.service.nodePort", 0, "/backend/service/nodePort': minimum"),
        ("backend.service.nodePort", 65536, "/backend/service/nodePort': maximum"),
        ("backend.extraEnv", [{"name": "A", "val": "b"}], "/backend/extraEnv/0'"),
        ("backend.probes.liveness.initialDelaySeconds", 5, "'initialDelaySeconds'"),
        ("operator.tickSeconds", 0, "/operator/tickSeconds': exclusiveMinimum"),
        ("metrics.podMonitor.interval", "soon", "/metrics/podMonitor/interval'"),
        (
            "metrics.prometheusRule.runbookUrl",
            "wiki.example/RUNBOOK.md",
            "/metrics/prometheusRule/runbookUrl'",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: Any, named: str) -> None:
    with pytest.raises(ChartRefused) as refused:
        render(nested(path, value))
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            nested("backend.probes.liveness.failureThreshold", 5),
            "backend.probes.liveness: periodSeconds x failureThreshold is 100 seconds",
        ),
        (
            {"backend": {"replicas": 2, "cache": {"persistent": True}}},
            "backend.replicas is 2, but the cache's claim (backend.cache.accessMode ReadWriteOnce)",
        ),
        (
            {"backend": {"replicas": 2, "cache": {"existingClaim": "mine"}}},
            "use a ReadWriteMany claim and say so in backend.cache.accessMode",
        ),
        (
            {"backend": {"autoscaling": {"enabled": True}, "cache": {"persistent": True}}},
            "backend.autoscaling.maxReplicas is 4, but the cache's claim",
        ),
        (
            {"backend": {"replicas": None, "cache": {"persistent": True}}},
            "backend.replicas is null, so that somebody else may start several pods, but the cache's claim",
        ),
        (
            {"backend": {"autoscaling": {"enabled": True, "minReplicas": 5}}},
            "backend.autoscaling.maxReplicas (4) must not be less than backend.autoscaling.minReplicas (5)",
        ),
        (
            nested("backend.settings.forceDefaultModel", True),
            "backend.settings.forceDefaultModel is true and backend.settings.defaultModel names no model",
        ),
        (
            nested(
                "backend.settings",
                {"forceDefaultModel": True, "defaultModel": "chat", "forceDefaultEmbeddingModel": True},
            ),
            "forceDefaultEmbeddingModel is true and backend.settings.defaultEmbeddingModel names no model",
        ),
        (
            nested("backend.service.nodePort", 30080),
            "backend.service.nodePort is 30080 and backend.service.type is ClusterIP",
        ),
        (
            {"backend": {"ingress": {"enabled": True}}},
            "backend.ingress.hosts is empty: name at least one host",
        ),
        (
            {"backend": {"resources": {"limits": {"ephemeral-storage": "20Gi"}}}},
            "backend.resources.limits.ephemeral-storage (20Gi) is less than backend.cache.size (50Gi)",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
            "enable one of them",
        ),
    ],
)
def test_values_that_are_wrong_together_are_refused_with_the_remedy(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ChartRefused) as refused:
        render(values)
    assert message in str(refused.value)


@pytest.mark.parametrize("amount", ["2", "500m", "1.5", ".5", "24Gi", "1e9", "8G", 2, 0.5, 17179869184])
def test_amounts_of_resources_are_written_as_kubernetes_takes_them(amount: str | float) -> None:
    resources = {"requests": {"cpu": amount}, "limits": {"example.com/device": amount}}

    container = render(nested("operator.resources", resources)).container("operator")

    assert container["resources"]["requests"]["cpu"] == amount
    assert container["resources"]["limits"]["example.com/device"] == amount


def test_a_default_of_the_resources_can_be_taken_away() -> None:
    container = render(nested("operator.resources.limits.memory", None)).container("operator")

    assert "memory" not in container["resources"]["limits"]


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(ChartRefused, match=r"requires kubeVersion: >=1\.30"):
        helm("template", "flexserv", str(CHART), "--kube-version", "1.29.9")
