"""Models that killed the container which loaded them: kept away for a while that grows with every death.
Pure.

The record lives in the status of the FlexServModel, so that it outlives the operator.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from flexserv_operator.backoff import QUARANTINE
from flexserv_operator.inventory import Identity

REMEMBERED = 20
"""How many instances a record lists, the newest last: as many as its schema allows."""


@dataclass(frozen=True)
class Crash:
    """A container died loading a model; `instance` is the one that came up after it."""

    instance: str
    reason: str


@dataclass(frozen=True)
class Quarantine:
    """One model's record. `until` is in seconds of the epoch."""

    count: int
    until: float
    reason: str
    instances: tuple[str, ...]
    generation: int | None = None
    """The generation of the FlexServModel whose status the record was read from."""

    def after(self, crash: Crash, now: float) -> "Quarantine":
        """The record after a death that is not in it yet; one that is in it changes nothing."""
        if crash.instance in self.instances:
            return self
        count = self.count + 1
        instances = (*self.instances, crash.instance)[-REMEMBERED:]
        return Quarantine(count, now + QUARANTINE.wait(count), crash.reason, instances)

    def lifted(self, now: float) -> "Quarantine":
        """The record after an edit: worth a try at once, and the count goes on if that ends badly too."""
        return replace(self, until=min(self.until, now))

    @property
    def until_time(self) -> str:
        """`until` in RFC 3339."""
        return datetime.fromtimestamp(self.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def status(self, generation: int) -> dict[str, Any]:
        """The record as status.quarantine of a FlexServModel of that generation has it."""
        return {
            "count": self.count,
            "observedGeneration": generation,
            "until": self.until_time,
            "reason": self.reason,
            "instances": list(self.instances),
        }


NONE = Quarantine(0, 0.0, "", ())


def read(status: Mapping[str, Any]) -> Quarantine | None:
    """The record in a FlexServModel's status, if there is one that makes sense."""
    record: Any = status.get("quarantine")
    try:
        return Quarantine(
            int(record["count"]),
            datetime.fromisoformat(record["until"]).timestamp(),
            str(record["reason"]),
            tuple(map(str, record["instances"])),
            record.get("observedGeneration"),
        )
    except (TypeError, KeyError, ValueError):
        return None


class Ward:
    """All records of one backend."""

    def __init__(self) -> None:
        self.records: dict[Identity, Quarantine] = {}
        self._generations: dict[str, int] = {}

    def admit(self, known: Iterable[tuple[str, int, Identity, Mapping[str, Any]]], now: float) -> None:
        """Take over the records in statuses, by uid, generation and model, forget models that are not among
        them, and lift the quarantine of those that were edited.

        A status is read once, at first sight: from then on it lags behind what is here.
        """
        generations: dict[str, int] = {}
        claimed, edited = set(), set()
        for uid, generation, identity, status in known:
            claimed.add(identity)
            generations[uid] = generation
            record = read(status) if uid not in self._generations else None
            if record and record.count > self.records.get(identity, NONE).count:
                self.records[identity] = record
            before = record.generation if record else self._generations.get(uid)
            if before not in (None, generation):
                edited.add(identity)
        self._generations = generations
        for identity in edited & self.records.keys():
            self.records[identity] = self.records[identity].lifted(now)
        self.records = {identity: record for identity, record in self.records.items() if identity in claimed}

    def note(self, identity: Identity, crash: Crash, now: float) -> bool:
        """Enter a death; false if it was on record."""
        before = self.records.get(identity, NONE)
        self.records[identity] = before.after(crash, now)
        return self.records[identity] is not before

    def release(self, identity: Identity, pinned: bool, states: Collection[str], now: float) -> bool:
        """Strike out a model that came through after its wait: loaded on all pods, or on any if on demand."""
        record = self.records.get(identity)
        if record is None or record.until > now or "Loaded" not in states:
            return False
        if pinned and any(state != "Loaded" for state in states):
            return False
        del self.records[identity]
        return True
