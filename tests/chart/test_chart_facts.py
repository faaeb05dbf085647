"""What single values do to the rendered objects."""

from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, RELEASE, Manifests, default_values, nested, render


def volume(manifests: Manifests, name: str) -> dict[str, Any] | None:
    return next((v for v in manifests.pod("backend")["volumes"] if v["name"] == name), None)


def app_version() -> str:
    chart: dict[str, str] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return chart["appVersion"]


def strategy(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = render(values).one("Deployment", "backend")["spec"]["strategy"]
    return found


@pytest.mark.parametrize("component", ["backend", "operator"])
def test_selectors_hold_no_version_and_match_their_pods(component: str) -> None:
    deployment = render().one("Deployment", component)["spec"]
    selector = deployment["selector"]["matchLabels"]

    assert selector == {
        "app.kubernetes.io/name": "flexserv",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/component": component,
    }
    assert selector.items() <= deployment["template"]["metadata"]["labels"].items()


def test_the_service_leads_to_backend_pods_alone() -> None:
    manifests = render()
    service = manifests.one("Service", "backend")["spec"]
    port = service["ports"][0]

    assert (port["port"], port["targetPort"]) == (80, "http")
    assert manifests.container("backend")["ports"] == [
        {"name": "http", "containerPort": 8001, "protocol": "TCP"}
    ]
    for component in ("backend", "operator"):
        labels = manifests.one("Deployment", component)["spec"]["template"]["metadata"]["labels"]
        assert (service["selector"].items() <= labels.items()) == (component == "backend")
    for check in ("health", "model"):
        labels = manifests.test_pod(check)["metadata"]["labels"]
        assert not service["selector"].items() <= labels.items()


def test_labels_of_a_user_cannot_break_the_selector() -> None:
    values = {"commonLabels": {"app.kubernetes.io/name": "mine"}, "backend": {"podLabels": {"tier": "gpu"}}}
    deployment = render(values).one("Deployment", "backend")["spec"]

    assert deployment["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == "flexserv"
    assert deployment["template"]["metadata"]["labels"]["tier"] == "gpu"


def test_two_releases_share_no_name() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        objects = render(nested("crds.enabled", False), release=release).objects
        return {(item["kind"], item["metadata"]["name"]) for item in objects}

    assert not names("first") & names("second")


def test_kubernetes_adds_no_variables_that_the_programs_would_read_as_settings() -> None:
    assert render().pod("backend")["enableServiceLinks"] is False
    assert render().pod("operator")["enableServiceLinks"] is False


def test_probes_ask_for_the_process_and_for_readiness() -> None:
    container = render().container("backend")

    assert container["startupProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"] >= 120
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/v1/flexserv/health", "port": "http"},
        "periodSeconds": 10,
        "failureThreshold": 6,
        "timeoutSeconds": 5,
    }
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


def test_no_sleep_is_asked_for_where_it_is_zero() -> None:
    assert "lifecycle" not in render(nested("backend.preStopSleepSeconds", 0)).container("backend")


def test_a_gpu_is_asked_for_by_default() -> None:
    manifests = render()

    assert manifests.container("backend")["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert manifests.pod("backend")["tolerations"] == default_values()["backend"]["gpu"]["tolerations"]
    assert "NVIDIA_VISIBLE_DEVICES" not in manifests.env("backend")


def test_without_gpus_none_is_asked_for_and_none_is_seen() -> None:
    gpu = {"count": 0, "runtimeClassName": "nvidia", "nodeSelector": {"gpu": "yes"}}
    manifests = render(nested("backend.gpu", gpu))

    assert not any("gpu" in name for name in manifests.container("backend")["resources"]["limits"])
    assert manifests.env("backend")["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "FLEXSERV_DEVICE" not in manifests.env("backend")
    assert not {"tolerations", "runtimeClassName", "nodeSelector"} & manifests.pod("backend").keys()


def test_the_gpu_joins_the_limits_that_a_user_sets() -> None:
    values = {
        "backend": {"gpu": {"count": 2, "resourceName": "amd.com/gpu"}, "resources": {"limits": {"cpu": "4"}}}
    }

    limits = render(values).container("backend")["resources"]["limits"]
    assert limits.items() >= {"cpu": "4", "amd.com/gpu": 2}.items()


def test_threads_follow_the_cpu_limit() -> None:
    names = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"}
    limited = render(nested("backend.resources.limits.cpu", "4")).container("backend")["env"]
    threads = {row["name"]: row for row in limited if row["name"] in names}

    assert threads.keys() == names
    for row in threads.values():
        assert row["valueFrom"]["resourceFieldRef"] == {"containerName": "backend", "resource": "limits.cpu"}
    assert not names & {row["name"] for row in render().container("backend")["env"]}


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ({}, "Recreate"),
        ({"replicas": 0}, "Recreate"),
        ({"replicas": 2}, "RollingUpdate"),
        ({"replicas": 1, "cache": {"persistent": True, "accessMode": "ReadWriteMany"}}, "Recreate"),
        ({"replicas": 2, "cache": {"persistent": True, "accessMode": "ReadWriteMany"}}, "RollingUpdate"),
    ],
)
def test_a_lone_pod_goes_before_the_next_one_comes(backend: dict[str, Any], kind: str) -> None:
    found = strategy({"backend": backend})

    assert found["type"] == kind
    if kind == "RollingUpdate":
        assert found["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_strategy_of_the_user_is_taken_as_it_is() -> None:
    wanted = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}

    assert strategy(nested("backend.updateStrategy", wanted)) == wanted


def test_secrets_are_files_and_never_variables() -> None:
    values = {
        "auth": {
            "token": {"secretName": "clients"},
            "adminToken": {"secretName": "admin", "secretKey": "key"},
        },
        "huggingFace": {"tokenSecretName": "hub"},
    }
    manifests = render({"backend": values})
    secrets = volume(manifests, "secrets")

    assert secrets is not None
    sources = [(s["secret"]["name"], s["secret"]["items"][0]) for s in secrets["projected"]["sources"]]
    assert sources == [
        ("clients", {"key": "token", "path": "token"}),
        ("admin", {"key": "key", "path": "admin-token"}),
        ("hub", {"key": "token", "path": "hugging-face-token"}),
    ]
    assert manifests.env("backend")["HF_TOKEN_PATH"] == "/run/secrets/flexserv/hugging-face-token"
    assert not any("secretKeyRef" in str(row) for row in manifests.container("backend")["env"])


def test_the_hub_is_left_alone_when_offline() -> None:
    env = render(nested("backend.huggingFace", {"offline": True, "endpoint": "https://hub.example.com"})).env(
        "backend"
    )

    assert (env["HF_HUB_OFFLINE"], env["HF_ENDPOINT"]) == ("1", "https://hub.example.com")
    assert not {"HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_TOKEN_PATH"} & render().env("backend").keys()


def test_a_variable_of_the_user_takes_the_place_of_the_charts() -> None:
    extra = [{"name": "HOME", "value": "/scratch/home"}, {"name": "FLEXSERV_LOG_LEVEL", "value": "debug"}]
    rows = render(nested("backend.extraEnv", extra)).container("backend")["env"]

    assert [row for row in rows if row["name"] == "HOME"] == [extra[0]]
    assert rows[-2:] == extra


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({}, f"flexserv/backend:{app_version()}"),
        ({"tag": "abc"}, "flexserv/backend:abc"),
        ({"tag": 20260101}, "flexserv/backend:20260101"),
        ({"digest": "sha256:" + "0" * 64, "tag": "abc"}, "flexserv/backend@sha256:" + "0" * 64),
    ],
)
def test_an_image_is_named_by_digest_else_tag_else_version(image: dict[str, Any], name: str) -> None:
    assert render(nested("backend.image", image)).container("backend")["image"] == name


def test_pods_are_scraped_once() -> None:
    def annotated(manifests: Manifests) -> set[str]:
        return {
            name
            for name, pod in manifests.pods()
            if pod["metadata"].get("annotations", {}).get("prometheus.io/scrape") == "true"
        }

    assert annotated(render()) == {"flexserv-backend", "flexserv-operator"}
    assert not annotated(render(nested("metrics.scrapeAnnotations", False)))
    for kind in ("ServiceMonitor", "PodMonitor"):
        manifests = render(nested(f"metrics.{kind[0].lower()}{kind[1:]}.enabled", True))
        assert not annotated(manifests)
        assert len(manifests.all(kind)) == 2


def test_an_annotation_of_the_user_takes_the_place_of_the_charts() -> None:
    manifests = render(nested("backend.podAnnotations", {"prometheus.io/scrape": "false", "mine": "yes"}))
    annotations = manifests.one("Deployment", "backend")["spec"]["template"]["metadata"]["annotations"]

    assert (annotations["prometheus.io/scrape"], annotations["mine"]) == ("false", "yes")
    assert annotations["prometheus.io/port"] == "8001"


def test_a_monitor_finds_its_port_by_name() -> None:
    manifests = render(nested("metrics.serviceMonitor.enabled", True))
    for component in ("backend", "operator"):
        monitor = manifests.one("ServiceMonitor", component)["spec"]
        service = manifests.one("Service", component)
        assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_the_network_policy_lets_in_the_operator_and_who_is_named() -> None:
    gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}
    manifests = render(nested("networkPolicy", {"enabled": True, "from": [gateway]}))
    policy = manifests.one("NetworkPolicy", "backend")["spec"]
    peers = policy["ingress"][0]["from"]
    operator = manifests.one("Deployment", "operator")["spec"]["template"]["metadata"]["labels"]

    assert policy["policyTypes"] == ["Ingress"]
    assert gateway in peers and {"podSelector": {}} not in peers
    assert any(
        p.get("podSelector", {"matchLabels": {"-": "-"}})["matchLabels"].items() <= operator.items()
        for p in peers
    )
    assert not render().all("NetworkPolicy")


def test_the_crd_is_kept_or_not_or_not_there() -> None:
    kept = render().one("CustomResourceDefinition", "crd")
    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    dropped = render(nested("crds.keep", False)).one("CustomResourceDefinition", "crd")
    assert "annotations" not in dropped["metadata"]
    assert not render(nested("crds.enabled", False)).all("CustomResourceDefinition")
