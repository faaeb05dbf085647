"""The operator at its full size: 500 FlexServModels, 50 of them Pinned, on 10 pods.

What it costs is measured from outside: calls at the backends, versions at the API server, /proc.
"""

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.eventually import eventually
from tests.support.fake_backend import FakeBackend
from tests.support.operator_world import Operator, World

MODELS, PINNED, PODS = 500, 50, 10
MAX_RSS_MIB = 150
MAX_CORE_SHARE = 0.15
MAX_ANSWER_S = 5.0
TICK_S = 10.0
"""What the operator does without --tick-seconds."""
WRITERS = 8
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """One look from outside; seconds are of the monotonic clock and of CPU time."""

    at: float
    cpu_seconds: float
    rss_mib: float
    cycles: float
    gets: tuple[int, ...]
    posts: tuple[int, ...]
    """By pod."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Scale:
    """One operator and its fleet. `settings` are the operator's, by name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.backends: list[FakeBackend] = []
        self.operator: Operator

    def build(self, *, loaded: bool = False, **settings: str) -> float:
        """Create everything and start the operator; the seconds until all is loaded and said.

        `loaded`: a former operator has loaded the models already.
        """
        for number in range(PODS):
            self.backends.append(self.world.add_pod(f"pod-{number}", f"127.0.0.{number + 2}"))
        with ThreadPoolExecutor(WRITERS) as pool:
            applied = list(pool.map(self._apply, range(MODELS)))
        for model in applied[:PINNED] if loaded else ():
            owner = f"{self.world.namespace}/{model['metadata']['name']}#{model['metadata']['uid']}"
            for backend in self.backends:
                backend.put(model["spec"]["model"], owner)
        begin = time.monotonic()
        self.operator = self.world.start_operator(**settings)
        eventually(self._settled, timeout=240, interval=1.0)
        return time.monotonic() - begin

    def _apply(self, number: int) -> dict[str, Any]:
        residency = "Pinned" if number < PINNED else "OnDemand"
        name = f"model-{number:03}"
        return self.world.apply(name, model=f"org/{name}", residency=residency)

    def _settled(self) -> bool:
        for backend in self.backends:
            assert len(backend.residents) == PINNED and backend.is_synced, f"{len(backend.residents)} loaded"
        statuses = [model.get("status") or {} for model in self._models()]
        phases = [status.get("phase") for status in statuses]
        ready = [status.get("ready") for status in statuses]
        assert phases.count("Loaded") == ready.count(f"{PODS}/{PODS}") == PINNED
        assert phases.count("Standby") == MODELS - PINNED
        return True

    def _models(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.world.plane.call("GET", self.world.models)["items"]
        return items

    def versions(self) -> Mapping[str, str]:
        """The version of every FlexServModel: another one means that somebody wrote it."""
        return {model["metadata"]["name"]: model["metadata"]["resourceVersion"] for model in self._models()}

    def sample(self) -> Sample:
        """How things are now."""
        process = Path(f"/proc/{self.operator.process.pid}")
        fields = process.joinpath("stat").read_text().rpartition(")")[2].split()
        status = process.joinpath("status").read_text().splitlines()
        rss_kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        calls = [list(backend.calls) for backend in self.backends]
        return Sample(
            at=time.monotonic(),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
            rss_mib=rss_kib / 1024,
            cycles=self.operator.metric("flexserv_operator_cycle_duration_seconds_count"),
            gets=tuple(sum(call.method == "GET" for call in of_one) for of_one in calls),
            posts=tuple(sum(call.method == "POST" for call in of_one) for of_one in calls),
        )

    def await_looks(self, looks: int, timeout: float) -> None:
        """Until every pod was looked at that many times more."""
        before = self.sample().gets
        eventually(
            lambda: all(now >= was + looks for now, was in zip(self.sample().gets, before, strict=True)),
            timeout,
            interval=0.5,
        )

    def restart_one(self, container_id: str = "x://2") -> tuple[float, float]:
        """Restart the container of one pod, as the kubelet reports it.

        Returns the seconds until it is sent something, and until it has all its models again.
        """
        backend = self.backends[0]
        posts = len(backend.posts(""))
        backend.restart()
        begin = time.monotonic()
        container = {
            "name": "backend",
            "containerID": container_id,
            "image": "",
            "imageID": "",
            "ready": False,
        }
        self.world.set_pod_status("pod-0", containerStatuses=[{**container, "restartCount": 1}])
        eventually(lambda: len(backend.posts("")) > posts, timeout=60, interval=0.02)
        answered = time.monotonic() - begin
        eventually(lambda: len(backend.residents) == PINNED and backend.is_synced, timeout=120)
        return answered, time.monotonic() - begin
