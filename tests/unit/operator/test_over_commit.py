"""More Pinned models than fit, played through with time made up: they settle by priority and stay settled."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from flexserv_operator.decide import plan
from flexserv_operator.plans import Memory

from tests.support.operator_values import (
    NOW,
    desired,
    evicted,
    failed,
    inventory,
    loading,
    model,
    resident,
    spoken,
)

TEN_MINUTES = 600
LOAD_S = 10
MONITOR_S = 30


@dataclass
class Pod:
    """A pod of so many bytes, in which every load takes ten seconds.

    Requests make a model grow by `growth` after its load: then the memory monitor, which looks every 30 s,
    may see more than `threshold` bytes in use, and takes the pinned model of the lowest priority.
    """

    capacity: int
    sizes: dict[str, int]
    priorities: dict[str, int]
    growth: int = 0
    threshold: int | None = None
    residents: list[str] = field(default_factory=list)
    loading: str | None = None
    done_at: float = 0.0
    failed: dict[str, dict] = field(default_factory=dict)
    evictions: dict[str, dict] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    unloads: list[str] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    def second(self, now: float, there: list[str]) -> None:
        """One second: loads end, the monitor looks, the operator looks and acts."""
        self._finish(now)
        if self.threshold is not None and (now - NOW) % MONITOR_S == 0:
            self._monitor(now)
        wanted = desired(*(model(name, priority=self.priorities[name]) for name in there))
        decision = plan(wanted, "same", self._look(), self.memory, now)
        self.memory = decision.memory
        for word in spoken(decision.actions):
            self._act(word, now)

    def _used(self) -> int:
        return sum(self.sizes[name] for name in self.residents)

    def _finish(self, now: float) -> None:
        if not self.loading or now < self.done_at:
            return
        name, self.loading = self.loading, None
        available = self.capacity - self._used()
        if self.sizes[name] <= available:
            self.residents.append(name)
        else:
            sizes = {"needed_bytes": self.sizes[name], "available_bytes": available}
            self.failed[name] = failed(name, "insufficient_memory", f"load-{len(self.loads)}", **sizes)

    def _monitor(self, now: float) -> None:
        used = self._used() + self.growth * len(self.residents)
        while self.residents and used > self.threshold:
            victim = min(self.residents, key=lambda name: self.priorities[name])
            self.residents.remove(victim)
            used -= self.sizes[victim] + self.growth
            count = self.evictions.get(victim, {"count": 0})["count"] + 1
            self.evictions[victim] = evicted(victim, "memory", ago=NOW - now, count=count)

    def _look(self):
        residents = [resident(name, bytes=self.sizes[name]) for name in self.residents]
        loads = [loading(self.loading, since=0)] if self.loading else []
        return inventory(
            *residents,
            loading=loads,
            failed=list(self.failed.values()),
            last_evictions=list(self.evictions.values()),
        )

    def _act(self, word: str, now: float) -> None:
        name = word.split()[1].removeprefix("org/")
        if word.startswith("unload"):
            self.residents.remove(name)
            self.unloads.append(name)
        elif word.startswith("load"):
            self.loads.append(name)
            self.failed.pop(name, None)
            self.loading, self.done_at = name, now + LOAD_S


PRIORITIES = {"low": 1, "mid": 5, "high": 9}


@pytest.mark.parametrize(
    "order", [("low", "mid", "high"), ("high", "mid", "low"), ("mid", "low", "high"), ("low", "high", "mid")]
)
def test_twice_of_what_fits_settles_by_priority_and_stays_settled(order):
    pod = Pod(100, {"low": 70, "mid": 60, "high": 60}, PRIORITIES)
    settled_unloads = 0
    for second in range(TEN_MINUTES + 60):
        pod.second(NOW + second, [name for number, name in enumerate(order) if second >= number * 20])
        if second == 120:
            assert pod.residents == ["high"]
            settled_unloads = len(pod.unloads)
    assert pod.residents == ["high"]
    assert len(pod.unloads) == settled_unloads <= 2
    assert len(pod.loads) <= 20


def test_equals_that_do_not_fit_together_do_not_push_each_other_out():
    pod = Pod(100, {"a": 60, "b": 60, "c": 60}, {"a": 1, "b": 1, "c": 1})
    for second in range(TEN_MINUTES):
        pod.second(NOW + second, ["a", "b", "c"])
        if second == 60:
            assert len(pod.residents) == 1
            (first,) = pod.residents
    assert pod.residents == [first]
    assert pod.unloads == []


def test_many_at_once_end_with_the_most_important_ones_that_fit():
    sizes = {f"m{number}": 25 for number in range(8)}
    pod = Pod(100, sizes, {name: number for number, name in enumerate(sizes)})
    for second in range(TEN_MINUTES):
        pod.second(NOW + second, list(sizes))
    assert sorted(pod.residents) == ["m4", "m5", "m6", "m7"]
    assert pod.unloads == []


def test_what_fits_only_until_it_is_used_is_taken_less_and_less_often_and_the_important_one_never():
    """Both are admitted, and together they are too much as soon as requests come: a loop, if it were one."""
    pod = Pod(100, {"low": 45, "high": 45}, PRIORITIES, growth=10, threshold=95)
    gone = []
    for second in range(TEN_MINUTES):
        before = list(pod.residents)
        pod.second(NOW + second, ["low", "high"])
        gone += [(second, name) for name in before if name not in pod.residents]
    assert {name for _, name in gone} == {"low"}
    times = [second for second, _ in gone]
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert 2 <= len(times) <= 5
    assert waits == sorted(waits) and waits[-1] >= 2 * waits[0]
    assert pod.loads.count("high") == 1
