"""The life of a release: upgraded from an earlier chart, rolled back, uninstalled in wrong orders, renewed.

The models are declared once, at the beginning. What follows is about the release: they have to come through.
"""

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from installation import CRD, Installation, await_true
from kube import Kube

from tests.support.backend_in_pod import BackendInPod, backend, ready_condition
from tests.support.chart import SCENARIOS, render, scenario
from tests.support.eventually import eventually

NAMESPACE = "flexserv-chart"
CHART = Path(__file__).parent.parent / "chart" / "fixtures" / "flexserv-0.1.0-alpha.1.tgz"
EARLIER = CHART.name.removesuffix(".tgz")
CHART_VALUES = Path(__file__).with_name("earlier-values.yaml")
VALUES = (
    "--set",
    "backend.resources.requests.memory=1300Mi,backend.resources.limits.memory=1300Mi",
    "--set",
    "backend.probes.readiness.periodSeconds=2,backend.preStopSleepSeconds=1",
)
TOKENS = {"client": "a-token-of-clients", "manager": "a-token-of-managers"}
USER = 1234567
GUARDED = (
    "--set",
    "backend.auth.token.secretName=tokens,backend.auth.token.secretKey=client",
    "--set",
    "backend.auth.adminToken.secretName=tokens,backend.auth.adminToken.secretKey=manager",
    "--set",
    f"backend.podSecurityContext.runAsUser={USER},backend.podSecurityContext.runAsGroup=0",
    "--set",
    f"operator.podSecurityContext.runAsUser={USER},operator.podSecurityContext.runAsGroup=0",
    "--set",
    "backend.podSecurityContext.fsGroup=null,operator.podSecurityContext.fsGroup=null",
    "--set",
    "tests.model=flexserv/tiny-random-llama",
    "--set",
    "backend.cache.existingClaim=flexserv-cache",
)
GPU = "flexserv.test/gpu"
"""An extended resource that stands in for GPUs: Kubernetes counts it like one."""
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
LOADED = {"smollm2": "Loaded", "minilm": "Loaded", "tiny-llama": "Standby"}
CACHED = "flexserv/cached"
CACHED_TOKENS = 3
FOREIGN_KINDS = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute"}
"""Kinds whose definitions others bring into a cluster."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def uids(installation: Installation) -> dict[str, str]:
    """The declared models by name, as the earlier chart's release had them."""
    installation.apply_sample("models.yaml")
    installation.await_phases(LOADED)
    return present(installation.kube)


@pytest.fixture(scope="module")
def cache_claim(installation: Installation, models: Path) -> Iterator[None]:
    """A claim from before the release, with one model in a cache of the hub, writable for group 0."""
    kube, volume = installation.kube, f"flexserv-cache-{installation.kube.namespace}"
    # What a run that was cut off has left would never bind again.
    kube.kubectl("delete", "persistentvolume", volume, "--ignore-not-found", "--timeout=60s")
    folder = Path(tempfile.mkdtemp(prefix="cache-claim-", dir=models))
    try:
        fill_hub_cache(folder, models)
        claim_cache(kube, volume, folder)
        yield
    finally:
        # It goes once the claim has gone with the namespace.
        kube.kubectl("delete", "persistentvolume", volume, "--ignore-not-found", "--wait=false")
        shutil.rmtree(folder, ignore_errors=True)


def fill_hub_cache(folder: Path, models: Path) -> None:
    """One model, as huggingface_hub keeps it; writable for group 0."""
    repository = folder / "huggingface" / "hub" / f"models--{CACHED.replace('/', '--')}"
    commit = "0" * 40
    shutil.copytree(models / "tiny-random-llama", repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o775 if path.is_dir() else 0o664)
        if os.geteuid() == 0:
            os.chown(path, -1, 0)


def claim_cache(kube: Kube, volume: str, folder: Path) -> None:
    """The folder as a claim, bound."""
    size, once = {"storage": "1Gi"}, {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    reference = {"namespace": kube.namespace, "name": "flexserv-cache"}
    disk = {"path": str(folder), "type": "Directory"}
    for kind, name, spec in (
        ("PersistentVolume", volume, {"capacity": size, "claimRef": reference, "hostPath": disk}),
        ("PersistentVolumeClaim", "flexserv-cache", {"volumeName": volume, "resources": {"requests": size}}),
    ):
        manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": {**once, **spec}}
        kube.apply(json.dumps(manifest))
    bound = "--for=jsonpath={.status.phase}=Bound"
    kube.kubectl("wait", bound, "persistentvolumeclaim/flexserv-cache", "--timeout=60s")


@pytest.fixture(scope="module")
def upgraded(installation: Installation, uids: dict[str, str], cache_claim: None) -> None:
    """The release of the earlier chart, upgraded to this tree's: with tokens, a claim for its cache, and as a
    user of no image.
    """
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tokens"}, "stringData": TOKENS}
    installation.kube.apply(json.dumps(secret))
    assert chart_of(installation.kube) == EARLIER
    installation.install(*VALUES, *GUARDED)


@pytest.fixture
def node(installation: Installation) -> Iterator[str]:
    """A node that has one of the stand-in resource."""
    kube = installation.kube
    name = str(kube.get("nodes")["items"][0]["metadata"]["name"])
    path = f"/status/capacity/{GPU.replace('/', '~1')}"

    def patch(*operations: dict[str, str]) -> None:
        kube.kubectl(
            "patch", "node", name, "--subresource=status", "--type=json", "-p", json.dumps(operations)
        )

    def allocatable() -> bool:
        found: dict[str, Any] = kube.get("node", name)["status"]["allocatable"]
        return found.get(GPU) == "1"

    patch({"op": "add", "path": path, "value": "1"})
    try:
        eventually(allocatable, timeout=90, interval=0.5)
        yield name
    finally:
        patch({"op": "remove", "path": path})


def present(kube: Kube) -> dict[str, str]:
    """uid of every FlexServModel by name."""
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in kube.get("fsm")["items"]}


def chart_of(kube: Kube) -> str:
    """Name and version of the chart that made the backend."""
    return str(kube.get("deployment", "flexserv-backend")["metadata"]["labels"]["helm.sh/chart"])


def nothing_is_left(kube: Kube) -> bool:
    """No pod, and nothing that the chart makes."""
    kinds = "pods,deployments,replicasets,services,roles,rolebindings,poddisruptionbudgets"
    return not kube.get(kinds)["items"]


def load(there: BackendInPod, token: str, model: str = CHAT) -> int:
    """The status code of an order to load a model; the models that are declared are loaded already."""
    return httpx.post(
        f"{there.url}/v1/flexserv/models/load",
        json={"model_id": model, "wait": 60},
        headers={"Authorization": f"Bearer {token}"},
        timeout=90,
    ).status_code


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_cluster_takes_what_the_chart_makes(kube: Kube, path: Path) -> None:
    objects = copy.deepcopy(render(scenario(path), release="trial", namespace=NAMESPACE).objects)
    ours = [item for item in objects if item["kind"] not in FOREIGN_KINDS]
    for item in ours:
        if item["kind"] == "Service":
            item["spec"].pop("ipFamilies", None)  # the cluster of these tests has IPv4 alone
    everything = {"apiVersion": "v1", "kind": "List", "items": ours}

    said = kube.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(everything))

    assert said.count("(server dry run)") == len(ours) > 2


@pytest.mark.usefixtures("upgraded")
def test_an_upgrade_from_an_earlier_chart_keeps_the_models(
    installation: Installation, uids: dict[str, str]
) -> None:
    kube = installation.kube
    assert chart_of(kube) != EARLIER
    assert present(kube) == uids
    installation.await_phases(LOADED)
    with backend(installation, TOKENS["client"]) as there:
        assert {CHAT, EMBEDDING} <= there.resident()


@pytest.mark.usefixtures("upgraded")
def test_each_token_opens_what_it_is_for(installation: Installation) -> None:
    """That the models are loaded shows that the operator has the one for managers."""
    with backend(installation, TOKENS["client"]) as there:
        answer = there.openai.embeddings.create(model=EMBEDDING, input="Bees make honey.")
        assert len(answer.data[0].embedding) == 384
        assert load(there, TOKENS["client"]) == 401
        assert load(there, TOKENS["manager"]) == 200
    with backend(installation, "a-guess") as there:
        assert load(there, "a-guess") == 401
        with pytest.raises(openai.AuthenticationError):
            there.openai.embeddings.create(model=EMBEDDING, input="Bees make honey.")


@pytest.mark.usefixtures("upgraded")
def test_what_lies_in_an_existing_claim_for_the_cache_is_not_downloaded_again(
    installation: Installation,
) -> None:
    """The pods are offline, and the model is nowhere else."""
    with backend(installation, TOKENS["client"]) as there:
        assert load(there, TOKENS["manager"], CACHED) == 200
        answer = there.openai.completions.create(model=CACHED, prompt="hello", max_tokens=CACHED_TOKENS)
        assert answer.usage is not None and 1 <= answer.usage.completion_tokens <= CACHED_TOKENS


@pytest.mark.usefixtures("upgraded")
@pytest.mark.parametrize("component", ["backend", "operator"])
def test_any_user_with_group_0_will_do(kube: Kube, component: str) -> None:
    said = kube.kubectl(
        "exec",
        f"deployment/flexserv-{component}",
        "--",
        "python",
        "-c",
        "import os; print(os.getuid(), os.getgid())",
    )

    assert said.split() == [str(USER), "0"]


@pytest.mark.usefixtures("upgraded")
def test_helm_test_passes(kube: Kube) -> None:
    said = kube.helm("test", "flexserv", "--timeout", "4m")

    assert "Succeeded" in said and "Failed" not in said, said


@pytest.mark.usefixtures("upgraded")
def test_a_rollback_keeps_the_models(installation: Installation, uids: dict[str, str]) -> None:
    kube = installation.kube
    kube.helm("rollback", "flexserv", "1", "--wait", "--timeout", "5m")

    assert chart_of(kube) == EARLIER
    assert present(kube) == uids
    installation.await_phases(LOADED)
    with backend(installation) as there:
        assert {CHAT, EMBEDDING} <= there.resident()


@pytest.mark.usefixtures("uids")
def test_the_backend_may_go_before_models_and_operator(installation: Installation) -> None:
    kube = installation.kube
    kube.kubectl("delete", "deployment", "flexserv-backend", "--timeout=90s", timeout=100)

    def lonely() -> bool:
        statuses = installation.statuses().values()
        return all(ready_condition(status)["reason"] == "NoBackends" for status in statuses)

    eventually(lonely, timeout=90, interval=0.5)
    kube.kubectl("delete", "fsm", "minilm", "--timeout=15s")
    installation.uninstall()
    eventually(lambda: nothing_is_left(kube), timeout=90, interval=0.5)


def test_a_new_release_with_a_gpu_finds_the_models_that_were_kept(
    installation: Installation, uids: dict[str, str], node: str
) -> None:
    kube = installation.kube
    kept = present(kube)
    assert kept and kept.items() <= uids.items()

    installation.install(*VALUES, "--set", f"backend.gpu.count=1,backend.gpu.resourceName={GPU}")

    installation.await_phases({"smollm2": "Loaded", "tiny-llama": "Standby"})
    pod = installation.backend_pod()
    assert pod["spec"]["nodeName"] == node
    assert pod["spec"]["containers"][0]["resources"]["limits"][GPU] == "1"
    kube.kubectl("scale", "deployment/flexserv-backend", "--replicas=2")

    def unschedulable() -> str | None:
        for pod in kube.get("pods", "--field-selector=status.phase=Pending")["items"]:
            for condition in pod["status"].get("conditions", []):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return str(condition["message"])
        return None

    assert f"Insufficient {GPU}" in eventually(unschedulable, timeout=60, interval=0.5)
    kube.kubectl("scale", "deployment/flexserv-backend", "--replicas=1")
    await_true(lambda: len(kube.get("pods")["items"]) == 2, 60, lambda: kube.kubectl("get", "pods"))


@pytest.mark.usefixtures("uids")
def test_the_operator_may_go_before_models_and_backend(installation: Installation) -> None:
    kube = installation.kube
    # Else its last act could be to unload the model whose declaration goes next.
    foreground = ("--cascade=foreground", "--timeout=90s")
    kube.kubectl("delete", "deployment", "flexserv-operator", *foreground, timeout=100)
    kube.kubectl("delete", "fsm", "smollm2", "--timeout=15s")
    with backend(installation) as there:
        answer = there.openai.completions.create(model=CHAT, prompt="hello", max_tokens=2)
        assert answer.usage is not None

    installation.uninstall()
    eventually(lambda: nothing_is_left(kube), timeout=90, interval=0.5)


def test_the_definition_may_go_before_everything_else(installation: Installation) -> None:
    kube = installation.kube
    installation.install(*VALUES)
    installation.apply_sample("models.yaml")
    installation.await_phases(LOADED)

    kube.kubectl("delete", "crd", CRD, "--timeout=60s")

    assert CRD not in kube.kubectl("get", "crd", "-o", "name")
    installation.uninstall()
    eventually(lambda: nothing_is_left(kube), timeout=90, interval=0.5)
