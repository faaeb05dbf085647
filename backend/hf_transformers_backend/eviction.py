"""Who goes when memory is short, and why: pure decisions over readings and what is resident.

The order: release caches and measure again; then models that nobody uses, least recently used first; then
pinned ones, lowest priority first. Never one that frees nothing on the pressed resource, never one in use,
never more than brings the reading to the threshold less a margin. After a round that did not help, a growing
cool-down. Memory that is not ours to free is `external`: reported, and nothing is evicted for it. Under a
container limit all memory is ours, and the order runs to its end.

The policy `all` is simpler: at a threshold every model goes at once, whoever's memory it is, those in use
with their last request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.settings.kinds import EvictionPolicy

Resource = Literal["ram", "vram"]
Scope = Literal["container", "node", "device"]
Origin = Literal["own", "external"]

MARGIN_RATIO = 0.05
"""How far below the threshold a round aims, so that the next request does not bring the pressure back."""
COOL_DOWN_SECONDS = 30.0
MAX_COOL_DOWN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One memory: the host's (`device` is "cpu") or a GPU's ("cuda:0"), and its threshold."""

    resource: Resource
    device: str
    scope: Scope
    used_bytes: int
    total_bytes: int
    threshold_ratio: float

    @property
    def used_ratio(self) -> float:
        return self.used_bytes / self.total_bytes if self.total_bytes > 0 else 0.0

    @property
    def is_pressed(self) -> bool:
        return self.total_bytes > 0 and self.used_ratio >= self.threshold_ratio

    @property
    def is_critical(self) -> bool:
        """Past the middle between threshold and full: no time to cool down."""
        return self.used_ratio >= (1.0 + self.threshold_ratio) / 2

    @property
    def excess_bytes(self) -> int:
        """What must go to be at the threshold less the margin."""
        target = max(self.threshold_ratio - MARGIN_RATIO, 0.0) * self.total_bytes
        return max(int(self.used_bytes - target), 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model in memory as the decision sees it; `held_bytes` per device, `last_used_at` on any clock.

    One that is `leaving` was unloaded: its memory is ours until its last request ends, and it is no choice.
    """

    identity: ModelIdentity
    held_bytes: Mapping[str, int]
    pinned: bool
    priority: int
    last_used_at: float
    active_requests: int
    leaving: bool = False

    @property
    def is_movable(self) -> bool:
        return self.active_requests == 0 and not self.leaving

    def frees(self, device: str) -> int:
        return self.held_bytes.get(device, 0)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shown in the inventory and in metrics; with `refuses_work` new work and loads are answered 503."""

    resource: Resource
    device: str
    scope: Scope
    origin: Origin
    used_ratio: float
    threshold_ratio: float
    refuses_work: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "device": self.device,
            "scope": self.scope,
            "origin": self.origin,
            "used_ratio": round(self.used_ratio, 3),
            "threshold_ratio": self.threshold_ratio,
            "refuses_work": self.refuses_work,
        }


@dataclass(frozen=True, slots=True)
class History:
    """How many rounds in a row left the pressure on, and when (clock seconds) the last one was."""

    rounds: int = 0
    last_round_at: float = 0.0

    def cools_until(self) -> float:
        if self.rounds == 0:
            return 0.0
        cool_down = min(COOL_DOWN_SECONDS * 2.0 ** (self.rounds - 1), MAX_COOL_DOWN_SECONDS)
        return self.last_round_at + float(cool_down)

    def after_round(self, now: float) -> "History":
        return History(self.rounds + 1, now)


Action = Literal["nothing", "release_caches", "evict", "cool_down", "external", "exhausted"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now; `pressures` are those that stand, worst first.

    nothing: no pressure. release_caches: do that, measure, decide again. evict: `victims`, in this order.
    cool_down: let the last round show. external: not ours. exhausted: ours, and nothing left to evict.
    """

    action: Action
    victims: tuple[ModelIdentity, ...] = ()
    pressures: tuple[Pressure, ...] = field(default=())

    @property
    def pressure(self) -> Pressure | None:
        return self.pressures[0] if self.pressures else None


def decide(
    readings: Sequence[Reading],
    candidates: Sequence[Candidate],
    *,
    caches_released: bool,
    history: History,
    now: float,
    policy: EvictionPolicy = "lru",
) -> Plan:
    """The next step for these readings. Pure; `now` and `history` are on the same clock."""
    pressed = [reading for reading in readings if reading.is_pressed]
    if not pressed:
        return Plan("nothing")
    if policy == "all" and (everybody := [one for one in candidates if not one.leaving]):
        return Plan(
            "evict",
            tuple(one.identity for one in sorted(everybody, key=_eviction_order)),
            _pressures(pressed, candidates, refuses_work=False),
        )
    if not caches_released:
        return Plan("release_caches", pressures=_pressures(pressed, candidates, refuses_work=False))
    ours = [reading for reading in pressed if is_ours(reading, candidates)]
    if not ours:
        return Plan("external", pressures=_pressures(pressed, candidates, refuses_work=False))
    victims = choose_victims(ours, candidates)
    if not victims:
        return Plan("exhausted", pressures=_pressures(pressed, candidates, refuses_work=True))
    pressures = _pressures(pressed, candidates, refuses_work=False)
    if now < history.cools_until() and not any(reading.is_critical for reading in ours):
        return Plan("cool_down", pressures=pressures)
    return Plan("evict", tuple(victim.identity for victim in victims), pressures)


def is_ours(reading: Reading, candidates: Sequence[Candidate]) -> bool:
    """Whether giving back all that we hold would bring this reading below its threshold."""
    if reading.scope == "container":
        return True
    held = sum(candidate.frees(reading.device) for candidate in candidates)
    return reading.used_bytes - held < reading.threshold_ratio * reading.total_bytes


def choose_victims(readings: Sequence[Reading], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Unused models, in the order in which they should go, that together relieve the pressed readings.

    All that help, if together they do not suffice.
    """
    victims: list[Candidate] = []
    for reading in readings:
        for candidate in sorted(candidates, key=_eviction_order):
            if _relief(victims, reading) >= reading.excess_bytes:
                break
            if candidate not in victims and candidate.is_movable and candidate.frees(reading.device) > 0:
                victims.append(candidate)
    # A large one taken late can make a small one taken early needless: spare it, the most valuable first.
    for candidate in sorted(victims, key=_eviction_order, reverse=True):
        others = [victim for victim in victims if victim is not candidate]
        if all(_still_enough(others, victims, reading) for reading in readings):
            victims = others
    return sorted(victims, key=_eviction_order)


def _eviction_order(candidate: Candidate) -> tuple[bool, int, float]:
    return (candidate.pinned, candidate.priority if candidate.pinned else 0, candidate.last_used_at)


def _relief(victims: Sequence[Candidate], reading: Reading) -> int:
    return sum(victim.frees(reading.device) for victim in victims)


def _still_enough(fewer: Sequence[Candidate], victims: Sequence[Candidate], reading: Reading) -> bool:
    return _relief(fewer, reading) >= min(reading.excess_bytes, _relief(victims, reading))


def _pressures(
    pressed: Sequence[Reading], candidates: Sequence[Candidate], *, refuses_work: bool
) -> tuple[Pressure, ...]:
    found = []
    for reading in sorted(pressed, key=lambda reading: reading.used_ratio, reverse=True):
        own = is_ours(reading, candidates)
        found.append(
            Pressure(
                reading.resource,
                reading.device,
                reading.scope,
                "own" if own else "external",
                reading.used_ratio,
                reading.threshold_ratio,
                refuses_work and own,
            )
        )
    # The one that refuses work is the one to show.
    return tuple(sorted(found, key=lambda pressure: not pressure.refuses_work))
