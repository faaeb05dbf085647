"""A model in memory, with who uses it and until when it stays."""

from collections.abc import Callable, Mapping

from hf_transformers_backend.admission import Occupant, Stance
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Servable
from hf_transformers_backend.residency.clock import Clock
from hf_transformers_backend.residency.lease import Lease
from hf_transformers_backend.residency.load_job import LoadJob
from hf_transformers_backend.residency.views import EvictionReason, ResidentView


class Resident:
    """Guarded by residency's lock. The idle clock runs while no lease is held."""

    def __init__(self, job: LoadJob, servable: Servable, *, default: bool, clock: Clock) -> None:
        self.identity: ModelIdentity = job.identity
        self.settings = job.settings
        self.asked = job.asked
        self.live = job.live
        self.default = default
        self.leases = 0
        self.reason: EvictionReason | None = None
        self._servable: Servable | None = servable
        self._clock = clock
        self._held: Mapping[str, int] = servable.devices
        self._commit = servable.commit
        self._loaded_at = self._last_used_at = clock.now()
        self._idle_since = clock.monotonic()

    @property
    def label(self) -> str:
        return self.live.served_name or self.identity.model_id

    @property
    def last_used_at(self) -> float:
        return self._last_used_at

    @property
    def held_bytes(self) -> Mapping[str, int]:
        """Per device, known also when it is gone; it grows when the model takes memory beside its weights."""
        if self._servable is not None:
            self._held = self._servable.devices
        return self._held

    def occupant(self, newcomer: ModelIdentity, *, leaving: bool = False) -> Occupant:
        """How admission sees it when `newcomer` wants to come in."""
        stance: Stance = "fixed" if self.live.pin or self.leases else "idle"
        if leaving:
            stance = "leaving"
        if self.identity == newcomer and (self.leases or not leaving):
            stance = "replaced"
        return Occupant(self.identity, self.held_bytes, self._last_used_at, stance, in_use=self.leases > 0)

    def lend(
        self,
        requested: str,
        *,
        cold: bool,
        give_back: Callable[["Resident"], None],
        on_lost: Callable[[Callable[[], None]], None],
    ) -> Lease:
        """One more lease. `give_back` is called once, without the lock."""
        self.leases += 1
        self._last_used_at = self._clock.now()
        return Lease(
            identity=self.identity,
            requested=requested,
            label=self.label,
            cold=cold,
            model=self._servable,
            chat_template_kwargs=self.live.chat_template_kwargs,
            on_release=lambda: give_back(self),
            on_lost=on_lost,
        )

    def take_back(self) -> None:
        """One lease less; the idle clock starts with the last."""
        self.leases -= 1
        self._last_used_at = self._clock.now()
        self._idle_since = self._clock.monotonic()

    def take_servable(self) -> Servable | None:
        """The model itself, for the one who frees it; None if somebody has it already."""
        servable, self._servable = self._servable, None
        return servable

    def idle_timeout(self, default_seconds: float) -> float:
        """Seconds; 0 means never."""
        if self.live.pin:
            return 0.0
        own = self.live.idle_timeout_seconds
        return default_seconds if own is None else own

    def expires_in(self, default_seconds: float) -> float | None:
        """Seconds until the model is idle for too long (may be negative); None while in use, or if never."""
        timeout = self.idle_timeout(default_seconds)
        if timeout <= 0 or self.leases:
            return None
        return self._idle_since + timeout - self._clock.monotonic()

    def view(self, default_seconds: float) -> ResidentView:
        expires_in = self.expires_in(default_seconds)
        held = self.held_bytes
        return ResidentView(
            identity=self.identity,
            label=self.label,
            served_name=self.live.served_name,
            owner=self.live.owner,
            default=self.default,
            pinned=self.live.pin,
            priority=self.live.priority,
            bytes=sum(held.values()),
            devices=held,
            commit=self._commit,
            settings=self.settings,
            asked=self.asked,
            loaded_at=self._loaded_at,
            last_used_at=self._last_used_at,
            expires_at=None if expires_in is None else self._clock.now() + expires_in,
            idle_timeout_seconds=self.idle_timeout(default_seconds),
            active_requests=self.leases,
        )
