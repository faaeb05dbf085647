"""Whether this process should get traffic: starting, ok, draining or failed; and who it is."""

import os
import uuid
from typing import Literal

from hf_transformers_backend.device_fault import DeviceHealth
from hf_transformers_backend.residency import Residency
from hf_transformers_backend.residency.clock import Clock, SystemClock
from hf_transformers_backend.settings import Settings

Status = Literal["ok", "starting", "draining", "failed"]


class Lifecycle:
    """Read by probes and scrapes from any thread. Once `ok`, only draining or a fault ends it."""

    def __init__(
        self,
        settings: Settings,
        residency: Residency,
        clock: Clock | None = None,
        health: DeviceHealth | None = None,
    ) -> None:
        self.instance_id = uuid.uuid4().hex
        self.pod_uid = os.environ.get("FLEXSERV_POD_UID") or None
        self._settings = settings
        self._residency = residency
        self._clock = clock or SystemClock()
        self.started_at = self._clock.now()
        self._started = self._clock.monotonic()
        self._was_ready = False
        self._draining = False
        self._health = health or DeviceHealth()

    @property
    def fault(self) -> str | None:
        """Why only a restart helps, None if it does not need one."""
        return self._health.fault

    @property
    def is_draining(self) -> bool:
        """A signal came. Takes no lock, so a signal handler may ask."""
        return self._draining

    def note_drain(self) -> None:
        """Not ready from now on. Takes no lock, so a signal handler may call it."""
        self._draining = True

    def drain(self) -> None:
        """Not ready from now on, and no new work."""
        self.note_drain()
        self._residency.drain()

    def is_ready(self) -> bool:
        return self.status() == "ok"

    def status(self) -> Status:
        if self._health.fault is not None:
            return "failed"
        if self._draining:
            return "draining"
        # An eviction or a later load never takes readiness back.
        self._was_ready = self._was_ready or self._has_started()
        return "ok" if self._was_ready else "starting"

    def _has_started(self) -> bool:
        if self._clock.monotonic() - self._started >= self._settings.startup_timeout:
            return True
        now = self._residency.snapshot()
        if self._residency.default("serve") in {job.identity for job in now.loading}:
            return False
        return now.synced or not self._settings.ready_after_sync
