"""From `helm install` to answers, through a crash, to `helm uninstall`: one story, told in order."""

import json
import time

import httpx
import numpy as np
import openai
import pytest
from installation import Installation, await_true
from kube import CommandFailed, Kube
from playwright.sync_api import expect
from prometheus import scraping

from tests.support.browser import chromium
from tests.support.eventually import eventually
from tests.support.processes import kill_container

pytestmark = pytest.mark.timeout(400)
NAMESPACE = "flexserv-e2e"
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
ON_DEMAND = "flexserv/tiny-random-llama"
QUESTIONS = (
    "What is the capital of France?",
    "Name three primary colors.",
    "What do bees make?",
)
WANTED = {"smollm2": "Loaded", "minilm": "Loaded", "tiny-llama": "Standby"}


@pytest.fixture(scope="module")
def base_url(kube: Kube):
    with kube.forward("service/flexserv", "http") as url:
        yield url


@pytest.fixture(scope="module")
def client(base_url: str):
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
        yield client


def generated_tokens(base_url: str, model: str) -> float:
    for line in httpx.get(f"{base_url}/metrics", timeout=10).text.splitlines():
        if line.startswith("flexserv_generated_tokens_total{") and f'"{model}"' in line:
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def test_after_helm_install_backend_and_operator_are_ready(installation: Installation) -> None:
    for deployment in installation.kube.get("deployments")["items"]:
        assert deployment["status"]["readyReplicas"] == deployment["spec"]["replicas"], deployment[
            "metadata"
        ]["name"]


def test_applied_samples_become_loaded_and_standby(installation: Installation) -> None:
    installation.apply_sample("models.yaml")
    statuses = installation.await_phases(WANTED)

    assert statuses["smollm2"]["ready"] == "1/1"
    assert statuses["minilm"]["ready"] == "1/1"
    table = installation.kube.kubectl("get", "fsm")
    assert "Loaded" in table and "1/1" in table and "Standby" in table
    for name in WANTED:
        metadata = installation.kube.get("fsm", name)["metadata"]
        assert "finalizers" not in metadata
        assert not any("kopf" in key for key in metadata.get("annotations", {}))


def test_a_condition_can_be_waited_for(kube: Kube) -> None:
    kube.kubectl(
        "wait", "--for=condition=Ready", "--timeout=30s", "fsm/smollm2", "fsm/minilm", "fsm/tiny-llama"
    )


def test_the_page_works_behind_a_port_forward(base_url: str) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(base_url)
        expect(page.locator("#status")).to_have_text("ok", timeout=30_000)
        expect(page.get_by_role("row").filter(has_text=CHAT)).to_contain_text("loaded", timeout=30_000)
        assert page.get_by_role("meter", name="Memory of the container").count() == 1


def test_greedy_answers_equal_those_of_the_library(client, base_url, library_answer) -> None:
    before = generated_tokens(base_url, CHAT)
    counted = 0
    for question in QUESTIONS:
        messages = [{"role": "user", "content": question}]
        expected = library_answer(question, max_new_tokens=48)
        whole = client.chat.completions.create(model=CHAT, messages=messages, max_tokens=48, temperature=0)
        assert whole.choices[0].message.content == expected, question
        chunks = list(
            client.chat.completions.create(
                model=CHAT,
                messages=messages,
                max_tokens=48,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == expected, question
        assert chunks[-1].usage is not None and chunks[-1].choices == []
        counted += whole.usage.completion_tokens + chunks[-1].usage.completion_tokens
    assert "Paris" in library_answer(QUESTIONS[0], max_new_tokens=48)
    assert generated_tokens(base_url, CHAT) - before == counted


def test_embeddings_equal_those_of_sentence_transformers(client, models) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["Paris is the capital of France.", "Bees make honey.", "¿Qué hora es?"]
    reply = client.embeddings.create(model=EMBEDDING, input=texts)
    vectors = np.array([row.embedding for row in reply.data])

    assert vectors.shape == (3, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    expected = SentenceTransformer(str(models / "all-MiniLM-L6-v2"), device="cpu").encode(
        texts, normalize_embeddings=True
    )
    assert np.allclose(vectors, expected, atol=1e-5)


def test_the_first_request_for_an_on_demand_model_loads_it(client, installation: Installation) -> None:
    reply = client.completions.create(model=ON_DEMAND, prompt="hello", max_tokens=4, temperature=0)

    assert reply.model == ON_DEMAND
    assert reply.usage.completion_tokens <= 4
    installation.await_phases({"tiny-llama": "Loaded"}, timeout=90)


def test_prometheus_sees_the_loaded_models(base_url: str) -> None:
    with scraping({"flexserv": base_url.removeprefix("http://")}) as prometheus:
        found = eventually(lambda: prometheus.query("flexserv_model_loaded == 1"), timeout=60)
        models = {json.loads(labels)["model"] for labels in found}
        assert {CHAT, EMBEDDING} <= models
        assert eventually(
            lambda: prometheus.query(f'flexserv_generated_tokens_total{{model="{CHAT}"}} > 0'), timeout=60
        )


def test_a_killed_backend_gets_its_pinned_models_back_unasked(installation: Installation) -> None:
    pod = installation.backend_pod()
    restarts = pod["status"]["containerStatuses"][0]["restartCount"]
    kill_container(installation.kube, pod)

    def restarted() -> bool:
        status = installation.backend_pod()["status"]["containerStatuses"][0]
        return status["restartCount"] > restarts and status["ready"]

    eventually(restarted, timeout=120, interval=0.5)
    installation.await_phases({"smollm2": "Loaded", "minilm": "Loaded"})
    with installation.kube.forward("service/flexserv", "http") as url:
        inventory = httpx.get(f"{url}/v1/flexserv/models/loaded", timeout=10).json()
        assert {CHAT, EMBEDDING} <= {model["served_name"] for model in inventory["models"]}
        with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", timeout=120) as client:
            answer = client.chat.completions.create(
                model=CHAT,
                messages=[{"role": "user", "content": QUESTIONS[0]}],
                max_tokens=48,
                temperature=0,
            )
        assert "Paris" in answer.choices[0].message.content


def test_a_deleted_model_leaves_within_ten_seconds(installation: Installation) -> None:
    with installation.kube.forward("service/flexserv", "http") as url:
        began = time.monotonic()
        installation.kube.kubectl("delete", "fsm", "minilm", "--wait", "--timeout=10s")

        def gone() -> bool:
            models = httpx.get(f"{url}/v1/flexserv/models/loaded", timeout=10).json()["models"]
            return EMBEDDING not in {model["served_name"] for model in models}

        eventually(gone, timeout=10)
        assert time.monotonic() - began < 10


def test_a_model_that_does_not_exist_fails_alone(installation: Installation) -> None:
    before = installation.statuses()["smollm2"]
    installation.apply_sample("missing-model.yaml")
    status = installation.await_phases({"missing": "Failed"}, timeout=60)["missing"]

    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ModelNotFound")
    assert "does-not-exist" in ready["message"]
    assert installation.statuses()["smollm2"] == before


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, "spec.model"),
        ({"model": "../etc"}, "model"),
        ({"model": "https://hub.example/x"}, "model"),
        ({"model": "org/name", "kind": "Chat"}, "spec.kind"),
        ({"model": "org/name", "residency": "Always"}, "spec.residency"),
        ({"model": "org/name", "residency": "Pinned", "idleTimeoutSeconds": 5}, "idleTimeoutSeconds"),
        ({"model": "org/name", "priority": "high"}, "spec.priority"),
    ],
)
def test_a_model_that_breaks_the_schema_is_refused_by_name(
    kube: Kube, spec: dict[str, object], named: str
) -> None:
    manifest = {
        "apiVersion": "flexserv.io/v1alpha1",
        "kind": "FlexServModel",
        "metadata": {"name": "bad"},
        "spec": spec,
    }
    with pytest.raises(CommandFailed, match=named):
        kube.apply(json.dumps(manifest))


def test_the_model_of_a_flexservmodel_cannot_be_changed(kube: Kube) -> None:
    with pytest.raises(CommandFailed, match="model"):
        kube.kubectl("patch", "fsm", "smollm2", "--type=merge", "-p", '{"spec": {"model": "org/other"}}')


def test_an_unknown_chart_value_is_refused_by_name(installation: Installation) -> None:
    with pytest.raises(CommandFailed, match="oomRamTreshold"):
        installation.install("--set", "backend.settings.oomRamTreshold=80", "--dry-run=server")


def test_the_operator_stays_small(installation: Installation) -> None:
    assert installation.operator_memory_bytes() <= 100 * 1024 * 1024


def test_uninstalling_while_models_exist_leaves_nothing_stuck(installation: Installation) -> None:
    kube = installation.kube
    assert kube.get("fsm")["items"], "the point is that models exist"
    kube.helm("uninstall", installation.release, "--wait", "--timeout", "2m")

    def pods_gone() -> bool:
        return not kube.get("pods")["items"]

    eventually(pods_gone, timeout=90, interval=0.5)
    kube.kubectl("delete", "fsm", "--all", "--wait", "--timeout=15s")
    kube.delete_namespace()
    await_true(
        lambda: kube.namespace not in kube.kubectl("get", "namespaces"),
        30,
        lambda: "the namespace is still there",
    )
