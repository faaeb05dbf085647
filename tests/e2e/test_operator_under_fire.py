"""Containers and pods die, come and go at the worst moments: every model comes back, nothing gets stuck."""

import httpx
import openai
import pytest
from installation import Installation

from tests.support.backend_in_pod import (
    backend,
    container,
    flexservmodel,
    ready_condition,
    restarted,
)
from tests.support.crafted_models import Crafts
from tests.support.eventually import eventually
from tests.support.processes import kill_container
from tests.support.traffic import traffic

NAMESPACE = "flexserv-fire"
VALUES = (
    "--set",
    "backend.resources.requests.memory=1300Mi,backend.resources.limits.memory=1300Mi",
    "--set",
    "backend.probes.readiness.periodSeconds=2",
    "--set",
    "backend.settings.shutdownTimeout=10,backend.terminationGracePeriodSeconds=20",
)
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
PINNED = {"smollm2": "Loaded", "minilm": "Loaded"}
QUESTION = [{"role": "user", "content": "Write a long story about a dragon and a lighthouse."}]

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", autouse=True)
def models_everywhere(installation: Installation) -> None:
    installation.apply_sample("models.yaml")
    installation.await_phases({**PINNED, "tiny-llama": "Standby"})


def slow_load(installation: Installation, crafts: Crafts, name: str, seconds: float) -> str:
    """Declare a Pinned model that loads for that long; returns its path in the pod."""
    path = crafts.slow(name, seconds)
    manifest = flexservmodel(name, model=path, priority=-1, trustRemoteCode=True)
    installation.kube.apply(manifest)
    return path


def deaths(installation: Installation, name: str) -> int:
    """How many containers the model took with it, as its status tells."""
    return int(installation.statuses()[name].get("quarantine", {}).get("count", 0))


def test_a_container_killed_in_the_middle_of_an_answer_gets_its_models_back(
    installation: Installation,
) -> None:
    restarts = container(installation)["restartCount"]
    with backend(installation) as there:
        stream = there.openai.chat.completions.create(
            model=CHAT, messages=QUESTION, max_tokens=300, temperature=0, stream=True
        )
        assert next(iter(stream)).model == CHAT
        kill_container(installation.kube, installation.backend_pod())
        with pytest.raises((openai.APIError, httpx.TransportError)):
            for _ in stream:
                pass

    eventually(lambda: restarted(installation, restarts), timeout=150, interval=0.5)
    installation.await_phases(PINNED)
    with backend(installation) as there:
        assert {CHAT, EMBEDDING} <= there.resident()
        assert deaths(installation, "smollm2") == 0


def test_an_operator_deleted_in_the_middle_of_a_load_loads_nothing_twice(
    installation: Installation, crafts: Crafts
) -> None:
    kube = installation.kube
    with backend(installation) as there:
        loads = there.metric("flexserv_model_loads_total")
        path = slow_load(installation, crafts, "slow", seconds=12)
        eventually(lambda: there.in_weights(path), timeout=60)
        kube.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=operator", "--timeout=60s")

        installation.await_phases({"slow": "Loaded", **PINNED})

        kube.kubectl("rollout", "status", "deployment/flexserv-operator", "--timeout=60s")
        assert there.metric("flexserv_model_loads_total") == loads + 1
        kube.kubectl("delete", "fsm", "slow", "--timeout=15s")
        eventually(lambda: path not in there.resident(), timeout=30)


@pytest.fixture(scope="module")
def unlucky(installation: Installation, crafts: Crafts) -> int:
    """A model during whose load the container is killed; gives the number of restarts before that."""
    restarts: int = container(installation)["restartCount"]
    with backend(installation) as there:
        path = slow_load(installation, crafts, "unlucky", seconds=10)
        eventually(lambda: there.in_weights(path), timeout=60)
        kill_container(installation.kube, installation.backend_pod())
    return restarts


def test_a_container_killed_in_the_middle_of_a_load_brings_back_all_but_that_model(
    installation: Installation, unlucky: int
) -> None:
    eventually(lambda: deaths(installation, "unlucky") == 1, timeout=150, interval=0.5)
    assert ready_condition(installation.statuses()["unlucky"])["reason"] == "CrashedWhileLoading"

    eventually(lambda: restarted(installation, unlucky), timeout=150, interval=0.5)
    installation.await_phases(PINNED)
    assert container(installation)["restartCount"] == unlucky + 1


@pytest.mark.timeout(700)
def test_no_request_misses_a_model_while_pods_come_go_and_are_replaced(installation: Installation) -> None:
    kube = installation.kube
    image = installation.backend_pod()["spec"]["containers"][0]["image"]
    chat = {"model": CHAT, "messages": QUESTION, "max_tokens": 4}
    texts = {"model": EMBEDDING, "input": ["Bees make honey."]}
    requests = [("/v1/chat/completions", chat), ("/v1/embeddings", texts)]
    with traffic(kube, image, requests) as client:
        installation.install("--set", "backend.replicas=2", *VALUES)
        client.await_more(10, timeout=60)
        kube.kubectl("rollout", "restart", "deployment/flexserv-backend")
        kube.kubectl("rollout", "status", "deployment/flexserv-backend", "--timeout=360s", timeout=370)
        client.await_more(10, timeout=60)
        installation.install("--set", "backend.replicas=1", *VALUES)
        tally = client.await_more(20, timeout=60)

    assert tally.refused == {}
    assert sum(tally.turned_away.values()) <= tally.answered / 10, tally
    installation.await_phases(PINNED)
    assert installation.statuses()["smollm2"]["ready"] == "1/1"


@pytest.mark.usefixtures("unlucky")
def test_a_quarantined_model_is_tried_again_when_its_time_has_come(installation: Installation) -> None:
    installation.await_phases({"unlucky": "Loaded"}, timeout=200)

    eventually(lambda: deaths(installation, "unlucky") == 0, timeout=60, interval=0.5)
    installation.kube.kubectl("delete", "fsm", "unlucky", "--timeout=15s")


def test_a_model_that_exhausts_the_memory_while_it_loads_takes_no_other_with_it(
    installation: Installation, crafts: Crafts
) -> None:
    restarts = container(installation)["restartCount"]
    path = crafts.overgrown("overgrown", layers=130)
    installation.kube.apply(flexservmodel("overgrown", model=path, priority=100))

    eventually(lambda: deaths(installation, "overgrown") == 1, timeout=200, interval=0.5)
    assert ready_condition(installation.statuses()["overgrown"])["reason"] == "OOMKilled"
    eventually(lambda: restarted(installation, restarts), timeout=150, interval=0.5)
    installation.await_phases(PINNED)
    ended = container(installation)["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    assert container(installation)["restartCount"] == restarts + 1
    installation.kube.kubectl("delete", "fsm", "overgrown", "--timeout=15s")


def test_a_namespace_with_models_in_it_is_deleted_without_a_hitch(
    installation: Installation, crafts: Crafts
) -> None:
    with backend(installation) as there:
        path = slow_load(installation, crafts, "late", seconds=6)
        eventually(lambda: there.in_weights(path), timeout=60)
    assert len(installation.kube.get("fsm")["items"]) == 4

    installation.kube.delete_namespace(timeout=240)

    assert installation.kube.namespace not in installation.kube.kubectl("get", "namespaces", "-o", "name")
