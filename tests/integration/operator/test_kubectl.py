"""What people do with kubectl: wait right after an edit, watch a load go, read the columns."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from flexserv_operator.changes import MESSAGE_PERIOD_S
from flexserv_operator.inventory import Eviction
from flexserv_operator.quarantine import NONE, Crash
from flexserv_operator.replica import Replica
from flexserv_operator.status import build

from tests.support.control_plane import find_binary
from tests.support.operator_values import NOW, desired, evicted, model
from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "5"}
A = "127.0.0.2"


def kubectl(world: World, *arguments: str) -> list[str]:
    """The command line, in the world's namespace."""
    config = world.plane.kubeconfig()
    return [find_binary("kubectl"), "--kubeconfig", str(config), "--namespace", world.namespace, *arguments]


def run(world: World, *arguments: str) -> str:
    """What kubectl prints; its exit status must be 0."""
    command = kubectl(world, *arguments)
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


@contextmanager
def running(world: World, output: Path, *arguments: str) -> Iterator[None]:
    """kubectl in the background; what it prints goes to `output`."""
    environment = {**os.environ, "HOME": str(output.parent)}
    with output.open("wb") as file:
        process = subprocess.Popen(kubectl(world, *arguments), stdout=file, env=environment)
        try:
            yield
        finally:
            process.terminate()
            process.wait(10)


def test_waiting_for_ready_right_after_an_edit_waits_for_what_was_edited(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat", dtype="float32")
    world.reaches("chat", "Loaded")
    # Slow enough that a status is due before the pod has answered.
    backend.load_seconds, backend.slowness = 1.0, 1.0
    world.edit("chat", dtype="bfloat16")
    run(world, "wait", "--for=condition=Ready", "fsm/chat", "--timeout=50s")
    (resident,) = backend.residents.values()
    assert resident["settings"]["dtype"] == "bfloat16"
    assert world.condition("chat", "Ready")["observedGeneration"] == 2


def written_at(world: World, name: str) -> datetime:
    """When the status was written, as the API server has it."""
    fields = world.get(name)["metadata"]["managedFields"]
    return datetime.fromisoformat(next(e["time"] for e in fields if e.get("subresource") == "status"))


def test_a_watched_load_shows_its_percentage_and_is_written_every_ten_seconds_at_most(
    world: World, tmp_path: Path
):
    world.add_pod("pod-a", A, load_seconds=MESSAGE_PERIOD_S + 6.0)
    world.start_operator(**FAST)
    output = tmp_path / "watched"
    with running(world, output, "get", "fsm", "--watch", "-o", "wide"):
        world.apply("chat", model="org/chat")
        world.reaches("chat", "Loading", "Loading")
        first = written_at(world, "chat")
        world.soon(lambda: written_at(world, "chat") > first, timeout=60)
        # The API server's clock has whole seconds.
        assert written_at(world, "chat") - first >= timedelta(seconds=MESSAGE_PERIOD_S - 1)
        world.reaches("chat", "Loaded", timeout=60)
        world.soon(lambda: "loaded on 1 pod" in output.read_text())
    lines = output.read_text().splitlines()
    assert any("Loading" in line and "weights" in line and "%" in line for line in lines), lines
    assert len([line for line in lines if "Loading" in line]) <= 4, lines


def test_the_columns_tell_the_story(world: World):
    world.add_pod("pod-a", A)
    world.add_pod("pod-b", "127.0.0.3")
    world.start_operator(**FAST)
    world.apply("a-older", model="org/one", servedName="chat")
    world.reaches("a-older", "Loaded")
    world.apply("b-younger", model="org/two", servedName="chat")
    world.reaches("b-younger", "Failed", "Conflict")
    head, older, younger = (line.split() for line in run(world, "get", "fsm").splitlines())
    assert head == ["NAME", "MODEL", "PHASE", "READY", "REASON", "AGE"]
    assert older[:5] == ["a-older", "org/one", "Loaded", "2/2", "Loaded"]
    assert younger[:5] == ["b-younger", "org/two", "Failed", "0/2", "Conflict"]
    wide = run(world, "get", "fsm", "b-younger", "-o", "wide")
    assert "taken by the older FlexServModel a-older" in wide


def test_the_api_server_knows_every_field_of_the_fullest_status_and_keeps_it(world: World):
    created = world.apply("full", model="org/full")
    wanted = model("full", served_name="x")
    gone = Eviction.model_validate(evicted("full", "memory", count=3))
    replicas = {
        "pod-a": Replica("Evicted", "EvictedMemory", "why", True, "c0ffee", gone),
        "pod-b": Replica("Loading", "Loading", "weights 40%"),
    }
    record = NONE.after(Crash("i-2", "OOMKilled"), NOW)
    status = build(wanted, {}, desired(wanted).claims[0], "flexserv", replicas, NOW, quarantine=record)
    body = {**created, "status": status}
    kept = world.plane.call("PUT", f"{world.models}/full/status?fieldValidation=Strict", body)
    assert kept["status"] == status
