"""A residency in a memory of its own, driven step by step, with everything that must hold after each step."""

import asyncio
import gc
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack

from hf_transformers_backend.admission import Room
from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.residency import Lease, Residency, ResidencySnapshot
from hf_transformers_backend.settings import load_settings

from tests.support.eventually import eventually
from tests.support.fake_loader import FakeLoader, FakeModel, HandClock

TOTAL = 1000
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.1
EXPECTED_CODES = {
    "model_unloaded",
    "superseded",
    "broken",
    "insufficient_memory",
    "memory_pressure",
}
"""What a request may be answered, besides with a model."""


class CountingLoader(FakeLoader):
    """Sees how many loads run at once; its models know when they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.most_at_once = 0
        self.closed: set[int] = set()

    def load(self, identity, settings, source, executor, progress):  # type: ignore[no-untyped-def]
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            model = super().load(identity, settings, source, executor, progress)
        finally:
            self.running -= 1
        # Another executor may have been where this one is now.
        self.closed.discard(id(model.executor))
        model.resources.callback(self.closed.add, id(model.executor))
        return model

    def alive(self) -> list[FakeModel]:
        """Models that somebody still refers to."""
        return [model for _, reference in self._loaded if (model := reference()) is not None]


class World:
    """Memory of TOTAL bytes for models of these sizes; None is one that is not known before the load."""

    def __init__(self, sizes: dict[str, int | None], *, max_models: int) -> None:
        self.loader = CountingLoader()
        self.loader.sizes = dict(sizes)
        self.clock = HandClock()
        self.pending: list[Future[None]] = []
        self._answered: deque[Lease] = deque()
        self.leases: list[Lease] = []
        self._seen = 0
        self._pinned: set[ModelIdentity] = set()
        self._threads = set(threading.enumerate())
        self._ends = ExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="world-loop", daemon=True)
        self._thread.start()
        self.residency = Residency(
            load_settings(load_wait=3600, model_timeout=100, max_loaded_models=max_models),
            self.loader,
            clock=self.clock,
            rooms=lambda kind: [self._room()],
        )
        self.max_models = max_models
        self.residency.start()

    def _room(self) -> Room:
        now = self.residency.snapshot()
        used = sum(model.bytes for model in (*now.models, *now.unloading))
        return Room("cpu", TOTAL - used, used, TOTAL)

    # Requests

    def request(self, name: str) -> None:
        self.pending.append(asyncio.run_coroutine_threadsafe(self._acquire(name), self._loop))

    async def _acquire(self, name: str) -> None:
        # In one go: a lease on its way between threads would be lost when the client goes just then.
        self._answered.append(await self.residency.acquire(name))

    def collect(self) -> None:
        """Take what has been answered."""
        answered = [future for future in self.pending if future.done()]
        self.pending = [future for future in self.pending if future not in answered]
        for future in answered:
            try:
                future.result()
            except FlexServError as error:
                assert error.code in EXPECTED_CODES, error
            except CancelledError:
                pass
        while self._answered:
            self.leases.append(self._answered.popleft())

    def pause(self) -> None:
        """Until nothing loads, or what loads waits for somebody; there is no other sign of that than time."""
        deadline = time.monotonic() + PAUSE_SECONDS
        while self.residency.snapshot().loading and time.monotonic() < deadline:
            time.sleep(0.001)

    def unpin(self, identity: ModelIdentity | None) -> None:
        """What follows may take it, or all: it may even come back unpinned, and go for others then."""
        self._pinned -= self._pinned if identity is None else {identity}

    # What must hold

    def check(self) -> ResidencySnapshot:
        now = self.residency.snapshot()
        assert now.loads.get("loaded", 0) == len(now.models) + sum(now.evictions.values()), "one was lost"
        identities = [model.identity for model in now.models]
        assert len(set(identities)) == len(identities), "one is there twice"
        assert self.loader.most_at_once <= 1, "two were turned into models at once"
        known = [one for one in (*now.models, *now.unloading) if self.loader.sizes[one.identity.model_id]]
        assert sum(model.bytes for model in known) <= TOTAL, "too much was let in"
        for lease in self.leases:
            assert id(lease.model.executor) not in self.loader.closed, "freed under a lease"
            assert not lease.model.executor._shutdown, "freed under a lease"
        held = sum(model.active_requests for model in (*now.models, *now.unloading))
        assert held >= len(self.leases), "a lease is not counted"
        self._check_pinned(now)
        return now

    def _check_pinned(self, now: ResidencySnapshot) -> None:
        for eviction in now.last_evictions:
            if eviction.seq > self._seen and eviction.reason in ("room", "idle"):
                assert eviction.identity not in self._pinned, f"a pinned one went: {eviction}"
        self._seen = max([self._seen, *(eviction.seq for eviction in now.last_evictions)])
        self._pinned = {model.identity for model in now.models if model.pinned}

    def end(self) -> None:
        """Let everything go on to its end: nobody waits, and nothing is left."""
        try:
            self._run_out()
        finally:
            for gate in self.loader.gates.values():
                gate.open()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_SECONDS)
            self._loop.close()

    def _run_out(self) -> None:
        for gate in self.loader.gates.values():
            gate.open()
        self.residency.set_pressure(None)
        # The loop may not even have begun with requests whose clients are gone.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), self._loop).result(PATIENCE_SECONDS)
        eventually(self._nobody_waits, PATIENCE_SECONDS, 0.01)
        eventually(self._nothing_is_held, PATIENCE_SECONDS, 0.01)
        self.residency.unload(None)
        assert self.residency.snapshot().models == ()
        assert self.residency.close(PATIENCE_SECONDS), "a thread does not end"
        gc.collect()
        assert self.loader.alive() == [], "a model is left"
        eventually(self._no_thread_is_left, PATIENCE_SECONDS, 0.01)

    def _nobody_waits(self) -> bool:
        self.collect()
        for lease in self.leases:
            lease.release()
        self.leases.clear()
        self.residency.tidy()
        return not self.pending

    def _nothing_is_held(self) -> bool:
        gc.collect()  # a dropped lease may be part of a cycle
        self.residency.tidy()
        now = self.check()
        return not now.loading and not now.unloading and not any(one.active_requests for one in now.models)

    def _no_thread_is_left(self) -> bool:
        left = set(threading.enumerate()) - self._threads - {self._thread}
        return not left
