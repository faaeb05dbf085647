"""A pod with a memory limit, filled up to its thresholds: who goes, who stays, what is told, and no OOM kill.

Weights are loaded as bfloat16 from files of float32: then they are the container's own memory, whoever has
the files in the page cache. A file of exactly the right size in /dev/shm fills the rest of the container.
"""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from installation import Installation

from tests.support.backend_in_pod import (
    BackendInPod,
    backend,
    container,
    events,
    flexservmodel,
    ready_condition,
)
from tests.support.crafted_models import Crafts
from tests.support.endless_streams import endless_streams
from tests.support.eventually import eventually

NAMESPACE = "flexserv-memory"
MIB = 2**20
LIMIT, THRESHOLD_PERCENT, IDLE_SECONDS = 2000 * MIB, 80, 4
THRESHOLD = LIMIT * THRESHOLD_PERCENT // 100
MODEL = 257 * MIB
"""SmolLM2 in bfloat16."""
ABOVE = 100 * MIB
"""How far a test goes beyond the threshold: one model is more than brings it back below."""
VALUES = (
    "--set",
    f"backend.resources.requests.memory={LIMIT // MIB}Mi,backend.resources.limits.memory={LIMIT // MIB}Mi",
    "--set",
    f"backend.sharedMemorySize={LIMIT // MIB}Mi,backend.preStopSleepSeconds=1",
    "--set",
    f"backend.settings.oomRamThreshold={THRESHOLD_PERCENT},backend.settings.oomCheckInterval=1",
    "--set",
    f"backend.settings.modelTimeout={IDLE_SECONDS}",
)
RESIDENT = {"chat": "Loaded", "spare": "Loaded", "small": "Loaded"}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def declared(installation: Installation, crafts: Crafts, models: Path) -> None:
    """Two large Pinned models, two large OnDemand ones, and a small one of each kind."""
    with (models / "SmolLM2-135M-Instruct" / "model.safetensors").open("rb") as weights:
        while weights.read(
            16 * MIB
        ):  # so that the files are in nobody's way, least of all in the pod's memory
            pass

    def declare(name: str, original: str, residency: str, **more: object) -> None:
        path = crafts.copy(f"memory-{name}", original)
        spec = {"model": path, "servedName": name, "dtype": "bfloat16", "residency": residency, **more}
        installation.kube.apply(flexservmodel(name, **spec))

    declare("small", "tiny-random-gpt2", "Pinned", priority=20)
    declare("chat", "SmolLM2-135M-Instruct", "Pinned", priority=10)
    declare("spare", "SmolLM2-135M-Instruct", "Pinned", priority=0)
    declare("first", "SmolLM2-135M-Instruct", "OnDemand", idleTimeoutSeconds=0)
    declare("second", "SmolLM2-135M-Instruct", "OnDemand", idleTimeoutSeconds=0)
    declare("idler", "tiny-random-llama", "OnDemand")
    installation.await_phases({**RESIDENT, "first": "Standby", "second": "Standby", "idler": "Standby"})


@pytest.fixture(scope="module")
def there(declared: None, installation: Installation) -> Iterator[BackendInPod]:
    """One connection for all tests: it ends with the container, which must not end."""
    with backend(installation) as pod:
        yield pod


def in_use(there: BackendInPod) -> int:
    """What decisions are made with, in bytes."""
    return int(there.metric("flexserv_container_memory_unreclaimable_bytes"))


def fill_to(installation: Installation, there: BackendInPod, used: int) -> None:
    """Change the file in /dev/shm so that this much of the container's memory is in use."""
    pod = installation.backend_pod()["metadata"]["name"]
    code = (
        "import os\n"
        "file = os.open('/dev/shm/filler', os.O_RDWR | os.O_CREAT, 0o600)\n"
        f"size = max(os.fstat(file).st_size + {used - in_use(there)}, 1)\n"
        "os.ftruncate(file, size)\n"
        "os.posix_fallocate(file, 0, size)\n"
    )
    installation.kube.kubectl("exec", pod, "-c", "backend", "--", "python", "-c", code)


def relieved(there: BackendInPod) -> bool:
    """Whether what was evicted has given its memory back, and the monitor has seen it."""
    return there.inventory()["pressure"] is None and in_use(there) < THRESHOLD


def ask(there: BackendInPod, model: str) -> None:
    there.openai.completions.create(model=model, prompt="hello", max_tokens=1)


def last_eviction(installation: Installation, name: str) -> str:
    """Why the model went last, as its status tells."""
    return str(installation.statuses()[name].get("lastEviction", {}).get("reason"))


def never_killed(installation: Installation) -> bool:
    status = container(installation)
    return bool(status["restartCount"] == 0 and not status["lastState"])


def test_a_model_leaves_after_the_idle_time_of_the_chart(
    installation: Installation, there: BackendInPod
) -> None:
    ask(there, "idler")

    eventually(lambda: "idler" not in there.resident(), timeout=60)

    assert there.metric("flexserv_model_evictions_total", reason="idle") == 1
    eventually(lambda: last_eviction(installation, "idler") == "idle", timeout=60, interval=0.5)
    assert installation.await_phases({**RESIDENT, "idler": "Standby"}, timeout=60)


def test_another_load_gets_the_room_of_the_model_that_nobody_used_for_longest(
    installation: Installation, there: BackendInPod
) -> None:
    with endless_streams(there.openai, "chat") as streams:
        fill_to(installation, there, THRESHOLD - 3 * MODEL // 2)
        ask(there, "first")
        assert "first" in there.resident()
        ask(there, "second")

        assert there.resident() == {"chat", "spare", "small", "second"}

    assert streams.broken == [] and streams.refused == [] and streams.completed > 0
    installation.await_phases({**RESIDENT, "first": "Standby", "second": "Loaded"}, timeout=60)
    eventually(lambda: last_eviction(installation, "first") == "room", timeout=60, interval=0.5)
    assert never_killed(installation)


def test_at_the_threshold_models_go_in_order_and_pinned_ones_come_back(
    installation: Installation, there: BackendInPod
) -> None:
    kube = installation.kube
    with endless_streams(there.openai, "chat") as streams:
        fill_to(installation, there, THRESHOLD + ABOVE)
        eventually(lambda: there.resident() == {"chat", "spare", "small"}, timeout=90)
        eventually(lambda: relieved(there), timeout=60)

        fill_to(installation, there, THRESHOLD + ABOVE)
        eventually(lambda: there.resident() == {"chat", "small"}, timeout=90)
        eventually(lambda: relieved(there), timeout=60)
        statuses = installation.await_phases({"spare": "Degraded", "second": "Standby"}, timeout=60)
        assert statuses["chat"]["phase"] == "Loaded"

        fill_to(installation, there, THRESHOLD + ABOVE)
        streams.await_end(timeout=180)

    assert streams.broken == [] and streams.completed > 0
    assert len(streams.refused) == 2 and streams.refused[0] == "memory_pressure"
    # The first to be refused leaves its model idle: when the second asks, that may have gone.
    assert streams.refused[1] in ("memory_pressure", "insufficient_memory")
    assert last_eviction(installation, "second") == "memory"
    assert ready_condition(statuses["spare"])["reason"] == "EvictedMemory"
    assert "EvictedMemory" in [reason for reason, _ in events(kube, "spare")]

    fill_to(installation, there, 0)
    installation.await_phases(RESIDENT, timeout=200)
    assert last_eviction(installation, "spare") == "memory"
    ask(there, "chat")
    assert never_killed(installation)


def test_a_threshold_below_what_a_model_needs_keeps_it_out(
    installation: Installation, there: BackendInPod
) -> None:
    base = in_use(there) - 2 * MODEL
    percent = 100 * (base + MODEL // 3) // LIMIT
    installation.install(*VALUES, "--set", f"backend.settings.oomRamThreshold={percent}")

    statuses = installation.await_phases({"small": "Loaded", "chat": "Failed", "spare": "Failed"})

    condition = ready_condition(statuses["chat"])
    assert condition["reason"] == "InsufficientMemory"
    assert "MiB" in condition["message"] or "bytes" in condition["message"], condition["message"]
    with backend(installation) as pod:
        assert pod.get("/v1/flexserv/info")["settings"]["oom_ram_threshold"] == percent
        with pytest.raises(openai.APIStatusError) as refused:
            ask(pod, "first")
        assert refused.value.status_code == 507
    assert never_killed(installation)
