"""The bench behind hack/bench-operator: how much the operator costs at full size, and how fast it is."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.ports import free_port

from tests.support.control_plane import control_plane
from tests.support.fake_fleet import fleet
from tests.support.operator_nursery import ROOT
from tests.support.operator_scale import (
    MAX_ANSWER_S,
    MAX_CORE_SHARE,
    MAX_RSS_MIB,
    MODELS,
    PINNED,
    PODS,
    TICK_S,
    Sample,
    Scale,
)
from tests.support.operator_world import OPERATOR_TOKEN, OPERATOR_USER, World

CRD = ROOT / "charts" / "flexserv" / "files" / "flexservmodel-crd.yaml"
SAMPLE_PERIOD_S = 5.0
RESTARTS = 5


@dataclass(frozen=True)
class Bound:
    """A measured value and the most that it may be."""

    what: str
    measured: float
    most: float

    @property
    def kept(self) -> bool:
        return self.measured <= self.most


@contextmanager
def full_size() -> Iterator[Scale]:
    """A control plane, and a namespace for 500 FlexServModels on 10 pods."""
    with tempfile.TemporaryDirectory(prefix="flexserv-bench-") as name, fleet(free_port()) as backends:
        folder = Path(name)
        with control_plane(folder, users={OPERATOR_TOKEN: OPERATOR_USER}) as plane:
            plane.install_crd(CRD)
            world = World(plane, "bench", backends, folder)
            try:
                yield Scale(world)
            finally:
                world.stop_operators()


def watch(scale: Scale, seconds: float) -> list[Sample]:
    """Samples of an operator that has nothing to do."""
    samples = [scale.sample()]
    while samples[-1].at - samples[0].at < seconds:
        time.sleep(SAMPLE_PERIOD_S)
        samples.append(scale.sample())
    return samples


def compare(samples: list[Sample], writes: int, answers: list[float]) -> list[Bound]:
    """The bounds, and where we are."""
    first, last = samples[0], samples[-1]
    ticks = (last.at - first.at) / TICK_S
    looks = max(now - was for now, was in zip(last.gets, first.gets, strict=True))
    share = (last.cpu_seconds - first.cpu_seconds) / (last.at - first.at)
    return [
        Bound("looks per pod and tick", looks / ticks, 1 + 1 / ticks),
        Bound("writes when nothing changes", writes, 0),
        Bound("calls to pods when nothing changes", sum(last.posts) - sum(first.posts), 0),
        Bound("seconds until a restarted container is answered", max(answers), MAX_ANSWER_S),
        Bound("resident memory, MiB", max(sample.rss_mib for sample in samples), MAX_RSS_MIB),
        Bound("share of a core", share, MAX_CORE_SHARE),
    ]


def main(seconds: float) -> int:
    path = ROOT / ".build" / "benches" / f"operator-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with full_size() as scale, path.open("w") as raw:

        def note(kind: str, **values: object) -> None:
            raw.write(json.dumps({"kind": kind, **values}) + "\n")

        note("size", models=MODELS, pinned=PINNED, pods=PODS)
        built = scale.build()
        note("built", seconds=built, **scale.sample().to_dict())
        print(f"{PINNED} of {MODELS} models loaded on {PODS} pods, one after the other, in {built:.1f} s")
        scale.await_looks(2, timeout=60)
        versions = scale.versions()
        samples = watch(scale, seconds)
        for sample in samples:
            note("quiet", **sample.to_dict())
        after = scale.versions()
        writes = sum(after[name] != version for name, version in versions.items())
        answers = []
        for number in range(RESTARTS):
            answered, restored = scale.restart_one(f"x://{number}")
            answers.append(answered)
            note("restart", answered=answered, restored=restored, **scale.sample().to_dict())
            print(f"restart: answered after {answered:.2f} s, all models back after {restored:.1f} s")
        bounds = compare(samples, writes, answers)
        for bound in bounds:
            note("bound", what=bound.what, measured=bound.measured, most=bound.most, kept=bound.kept)
            verdict = "ok  " if bound.kept else "MISS"
            print(f"{verdict} {bound.what}: {bound.measured:.3g} (at most {bound.most:.3g})")
    print(f"raw samples: {path}")
    return 0 if all(bound.kept for bound in bounds) else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
