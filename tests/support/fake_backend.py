"""Backends without models: the management half of the contract as a small state machine over real HTTP.

Loads take `load_seconds`, one at a time; memory is a number; what a test wants to go wrong it says with plain
attributes. Every call is recorded.
"""

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Key = tuple[str, str, str | None]
LIVE = ("owner", "pin", "priority", "idle_timeout_seconds", "served_name", "chat_template_kwargs")
LOAD_TIME = ("dtype", "quantization", "attn_implementation", "trust_remote_code")


class Refusal(Exception):
    """An error answer of the contract."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


@dataclass
class Call:
    """One request as it came in."""

    method: str
    path: str
    instance: str | None
    body: Any
    at: float


@dataclass(frozen=True)
class Departure:
    """A model that left memory, and which ones stayed."""

    name: str
    reason: str
    stayed: tuple[str, ...]


def _one_at_a_time(
    method: Callable[Concatenate["FakeBackend", P], R],
) -> Callable[Concatenate["FakeBackend", P], R]:
    """The server's thread and the test's both let the machine go on: neither sees the other half-way."""

    @functools.wraps(method)
    def locked(self: "FakeBackend", *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


@dataclass
class FakeBackend:
    """One pod's backend. Sizes are bytes."""

    pod_uid: str
    load_seconds: float = 0.05
    fetch_seconds: float = 0.0
    """Before the load itself, unless the files are in `cache`."""
    cache: set[str] = field(default_factory=set)
    """Model ids whose files were fetched; several backends may share it."""
    capacity: int = 1000
    sizes: dict[str, int] = field(default_factory=dict)
    fail_with: dict[str, str] = field(default_factory=dict)
    """Loads of these model ids end with that code."""
    deadly: set[str] = field(default_factory=set)
    """Loads of these model ids end the container, which comes up again at once."""
    token: str | None = None
    """What every POST has to bear."""
    guards_reads: bool = False
    """What is asked by GET has to bear it too."""
    defaults: dict[str, Any] = field(default_factory=lambda: {"dtype": "auto", "trust_remote_code": False})
    """Load-time settings of models for which nothing else is asked."""
    refuse: Refusal | None = None
    """Every POST is answered with this."""
    unacceptable: dict[str, str] = field(default_factory=dict)
    """Settings of these model ids are refused, with that message."""
    slowness: float = 0.0
    """Seconds that every answer takes."""
    hang: bool = False
    """Nothing is answered."""
    lie: Any = None
    """Answered as the inventory, whatever it is."""
    calls: list[Call] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)
    """Loads by model id, over all instances."""
    fetched: list[str] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    """Over all instances."""
    instance_id: str = ""
    instances: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self.restart()

    @_one_at_a_time
    def restart(self) -> None:
        """What a container restart does: all is gone, but for the note of what was being loaded."""
        loads = getattr(self, "loads", ())
        crashed = [load["key"] for load in loads if load["started"] is not None and load["here"]]
        self.instances += 1
        self.instance_id = f"{self.pod_uid}-{self.instances}"
        self.crashed: list[Key] = crashed
        self.residents: dict[Key, dict[str, Any]] = {}
        self.loads: list[dict[str, Any]] = []
        self.failed: dict[Key, dict[str, Any]] = {}
        self.evictions: dict[Key, dict[str, Any]] = {}
        self.declared: dict[Key, dict[str, Any]] = {}
        self.declared_hash: str | None = None
        self.is_synced = False
        self.sequence = 0

    # What happens by itself, and what others do

    @_one_at_a_time
    def advance(self) -> None:
        """Start and finish loads whose time has come."""
        now = time.time()
        while self.loads:
            load = self.loads[0]
            if load["started"] is None:
                load["started"] = now
            model_id = load["key"][1]
            if not load["here"] and now - load["started"] >= self.fetch_seconds:
                load["here"] = True
                self.cache.add(model_id)
                self.fetched.append(model_id)
            fetching = 0 if load["cached"] else self.fetch_seconds
            if now - load["started"] < fetching + self.load_seconds:
                return
            if model_id in self.deadly:
                self.restart()
                return
            self.loads.pop(0)
            self._finish(load)

    @_one_at_a_time
    def evict(self, model_id: str, reason: str) -> None:
        """A model goes, for a reason of the backend or of somebody's hand."""
        for key in [key for key in self.residents if key[1] == model_id]:
            self._drop(key, reason)

    def _drop(self, key: Key, reason: str) -> None:
        del self.residents[key]
        self.departures.append(Departure(_name(key), reason, tuple(map(_name, self.residents))))
        self.sequence += 1
        count = self.evictions.get(key, {}).get("count", 0) + 1
        self.evictions[key] = {"reason": reason, "seq": self.sequence, "at": _now(), "count": count}

    @_one_at_a_time
    def put(self, model_id: str, owner: str | None, revision: str | None = None) -> None:
        """A model that is in memory already, for whatever reason."""
        key = ("serve", model_id, revision)
        self._finish({"key": key, "load_id": "former", "settings": {"owner": owner}})

    @_one_at_a_time
    def serve_request(self, model_id: str) -> None:
        """A client's request, which loads a declared model."""
        for key, settings in self.declared.items():
            if key[1] == model_id and key not in self.residents:
                self._start(key, settings)

    def posts(self, path: str) -> list[Call]:
        """The POSTs to a route whose path ends so."""
        return [call for call in list(self.calls) if call.method == "POST" and call.path.endswith(path)]

    @_one_at_a_time
    def resident_ids(self) -> list[str]:
        """The names in memory, with revisions."""
        self.advance()
        return sorted(map(_name, list(self.residents)))

    # The contract

    @_one_at_a_time
    def inventory(self) -> Any:
        """The body of GET models/loaded."""
        if self.lie is not None:
            return self.lie
        self.advance()
        return {
            "instance_id": self.instance_id,
            "pod_uid": self.pod_uid,
            "synced": self.is_synced,
            "declared_hash": self.declared_hash,
            "models": [{**_named(key), **resident} for key, resident in self.residents.items()],
            "unloading": [],
            "loading": [self._loading(load) for load in self.loads],
            "failed": [{**_named(key), **failure} for key, failure in self.failed.items()],
            "crashed_loading": [_named(key) for key in self.crashed],
            "last_evictions": [{**_named(key), **gone} for key, gone in self.evictions.items()],
            "pressure": None,
        }

    @_one_at_a_time
    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Any mutation."""
        if self.refuse is not None:
            raise self.refuse
        self.advance()
        match path.rpartition("/flexserv/")[2]:
            case "models/load":
                return self._load(body)
            case "models/unload":
                return self._unload(body)
            case "declared":
                return self._declare(body)
            case "synced":
                self.is_synced = True
                return 200, {}
        raise Refusal(404, "not_found", path)

    def _load(self, body: dict[str, Any]) -> tuple[int, Any]:
        key = _key(body)
        self._check(body, "")
        self.crashed = [crashed for crashed in self.crashed if crashed != key]
        resident = self.residents.get(key)
        if resident is not None:
            resident.update({name: body[name] for name in LIVE if name in body})
            asked = {**resident["requested_settings"], **{k: body[k] for k in LOAD_TIME if k in body}}
            asked = {name: value for name, value in asked.items() if value is not None}
            if self._in_force(asked) == resident["settings"]:
                resident["requested_settings"] = asked
                return 200, {**_named(key), "status": "already_loaded"}
        load = self._start(key, body)
        return 202, {**_named(key), "status": "loading", "load_id": load["load_id"]}

    def _unload(self, body: dict[str, Any]) -> tuple[int, Any]:
        key = _key(body)
        self.loads = [load for load in self.loads if load["key"] != key]
        if key in self.residents:
            self._drop(key, "manual")
        return 200, {"unloaded": [_named(key)]}

    def _check(self, entry: dict[str, Any], place: str) -> None:
        message = self.unacceptable.get(entry["model_id"])
        if message:
            param = f"{place}chat_template_kwargs"
            raise Refusal(400, "invalid_request", f"{param}: {message}", param)

    def _declare(self, body: dict[str, Any]) -> tuple[int, Any]:
        for index, entry in enumerate(body["models"]):
            self._check(entry, f"models[{index}].")
        self.declared = {_key(entry): entry for entry in body["models"]}
        self.declared_hash = body["hash"]
        for key, entry in self.declared.items():
            if key in self.residents:
                self.residents[key].update({name: entry[name] for name in LIVE if name in entry})
        return 200, {}

    def _start(self, key: Key, settings: dict[str, Any]) -> dict[str, Any]:
        for load in self.loads:
            if load["key"] == key:
                return load
        self.sequence += 1
        cached = key[1] in self.cache or not self.fetch_seconds
        load = {"key": key, "load_id": f"load-{self.sequence}", "settings": settings, "started": None}
        load |= {"cached": cached, "here": cached}
        self.begun[key[1]] += 1
        self.failed.pop(key, None)
        self.loads.append(load)
        self.advance()
        return load

    def _finish(self, load: dict[str, Any]) -> None:
        key, settings = load["key"], load["settings"]
        size = self.sizes.get(key[1], 10)
        used = sum(resident["bytes"] for other, resident in self.residents.items() if other != key)
        code = self.fail_with.get(key[1]) or ("insufficient_memory" if used + size > self.capacity else None)
        if code:
            self.failed[key] = {
                "load_id": load["load_id"],
                "code": code,
                "message": f"{key[1]}: {code}",
                "needed_bytes": size,
                "available_bytes": self.capacity - used,
                "at": _now(),
            }
            return
        self.residents[key] = {
            "commit": "c0ffee",
            "default": False,
            "bytes": size,
            "settings": self._in_force(settings),
            "requested_settings": {k: settings[k] for k in LOAD_TIME if settings.get(k) is not None},
            "loaded_at": _now(),
            "last_used_at": _now(),
            "active_requests": 0,
            **{name: settings.get(name) for name in LIVE},
        }

    def _in_force(self, asked: dict[str, Any]) -> dict[str, Any]:
        settings = {name: asked.get(name) or self.defaults.get(name) for name in LOAD_TIME}
        return {name: None if value == "none" else value for name, value in settings.items()}

    def _loading(self, load: dict[str, Any]) -> dict[str, Any]:
        started = load["started"]
        return {
            **_named(load["key"]),
            "owner": load["settings"].get("owner"),
            "load_id": load["load_id"],
            "stage": ("weights" if load["here"] else "download") if started else "queued",
            "done": time.time() - started if started else 0,
            "total": self.load_seconds if load["here"] else self.fetch_seconds,
            "started_at": datetime.fromtimestamp(started, UTC).isoformat() if started else None,
            "stage_since": _now(),
        }


def _key(body: dict[str, Any]) -> Key:
    return (body.get("kind", "serve"), body["model_id"], body.get("revision"))


def _name(key: Key) -> str:
    return f"{key[1]}@{key[2]}" if key[2] else key[1]


def _named(key: Key) -> dict[str, Any]:
    return {"kind": key[0], "model_id": key[1], "revision": key[2]}


def _now() -> str:
    return datetime.now(UTC).isoformat()
