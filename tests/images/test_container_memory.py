"""The backend in a container with a memory limit, filled until the limit acts."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from lab.places import models

from tests.images.conftest import Built
from tests.support.endless_streams import endless_streams
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(400)

MODEL = "SmolLM2-135M-Instruct"
MEGABYTE = 1_000_000
AMPLE = 3000 * MEGABYTE
ROOM = 800 * MEGABYTE
"""For two more models, which take about 310 MB each, and not for three."""
THRESHOLD = 0.9
WAIT_SECONDS = 90


@dataclass(frozen=True)
class Container:
    """A backend that runs in it, and the engine's view of it."""

    image: Built
    name: str
    client: httpx.Client

    def docker(self, *command: str) -> str:
        answer = self.image.docker(*command, self.name)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout + answer.stderr

    def state(self) -> dict[str, Any]:
        return json.loads(self.docker("inspect", "--format", "{{json .State}}"))  # type: ignore[no-any-return]

    def limit(self, count: int) -> None:
        self.docker("update", "--memory", str(count), "--memory-swap", str(count))

    def used(self) -> int:
        """What decisions are made with, in bytes."""
        text = self.client.get("/metrics").text
        found = re.search(r"^flexserv_container_memory_unreclaimable_bytes (\S+)$", text, re.MULTILINE)
        assert found is not None, text
        return int(float(found[1]))

    def load(self, name: str, **settings: object) -> httpx.Response:
        body = {"model_id": f"/models/{name}", "wait": WAIT_SECONDS, **settings}
        return self.client.post("/v1/flexserv/models/load", json=body, timeout=2 * WAIT_SECONDS)

    def bring_in(self, name: str, **settings: object) -> None:
        reply = self.load(name, **settings)
        assert reply.status_code == 200, reply.text

    def inventory(self) -> dict[str, Any]:
        return self.client.get("/v1/flexserv/models/loaded").raise_for_status().json()  # type: ignore[no-any-return]

    def resident(self) -> str:
        return "".join(sorted(Path(model["model_id"]).name for model in self.inventory()["models"]))

    def reasons(self) -> dict[str, str]:
        """Why those that went did."""
        return {Path(one["model_id"]).name: one["reason"] for one in self.inventory()["last_evictions"]}


@pytest.fixture
def container(backend: Built) -> Iterator[Container]:
    """One model under four names. Cast when it is loaded, its weights are each time the container's own."""
    with (models() / MODEL / "model.safetensors").open("rb") as file:
        while file.read(16 * MEGABYTE):  # the pages of the file shall be charged to somebody else
            pass
    volumes = [option for name in "abcd" for option in ("--volume", f"{models() / MODEL}:/models/{name}:ro")]
    started = backend.docker(
        "run", "--detach", "--network", "host", "--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp",
        # Torch's threads spin while they wait, which slows all down on a busy machine.
        "--env", "OMP_WAIT_POLICY=PASSIVE",
        "--memory", str(AMPLE), "--memory-swap", str(AMPLE), *volumes, backend.name,
        "--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--dtype", "bfloat16",
        "--oom-monitor", "--oom-ram-threshold", str(100 * THRESHOLD), "--oom-check-interval", "1",
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    try:
        with httpx.Client(base_url=address(backend, name), timeout=WAIT_SECONDS) as client:
            yield Container(backend, name, client)
    finally:
        backend.docker("rm", "--force", name)


def address(backend: Built, name: str) -> str:
    def told() -> str | None:
        logs = backend.docker("logs", name)
        found = re.search(r"listening on (http://\S+)", logs.stdout + logs.stderr)
        return None if found is None else found[1]

    return str(eventually(told, WAIT_SECONDS))


def test_a_container_filled_to_its_limit_is_not_killed_and_lets_only_idle_models_go(
    container: Container,
) -> None:
    before = container.state()
    container.bring_in("a")
    url = str(container.client.base_url.join("/v1"))

    with (
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
        endless_streams(client, "/models/a") as streams,
    ):
        eventually(lambda: streams.completed, WAIT_SECONDS)
        container.limit(int((container.used() + ROOM) / THRESHOLD))
        for name in "bc":
            container.bring_in(name)
        assert (container.resident(), container.reasons()) == ("abc", {})
        client.completions.create(model="/models/b", prompt="hello", max_tokens=1)

        container.bring_in("d")
        assert (container.resident(), container.reasons()) == ("abd", {"c": "room"})

        for name in "bd":
            container.bring_in(name, pin=True)
        refused = container.load("c")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (507, "insufficient_memory")
        assert error["needed_bytes"] > error["available_bytes"]
        assert container.resident() == "abd", "one in use made room"

        container.bring_in("b", pin=False)
        # As if the process had grown past its threshold.
        container.limit(int(container.used() / (THRESHOLD + 0.04)))
        eventually(lambda: container.resident() == "ad", WAIT_SECONDS)
        assert container.reasons() == {"b": "memory", "c": "room"}

    assert (streams.broken, streams.refused) == ([], [])
    after = container.state()
    assert (after["Running"], after["OOMKilled"]) == (True, False)
    assert after["StartedAt"] == before["StartedAt"]
