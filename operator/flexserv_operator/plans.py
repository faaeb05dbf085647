"""What is decided for one pod, and what is remembered of it from one decision to the next: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flexserv_operator.backoff import Attempt
from flexserv_operator.desired import Claim
from flexserv_operator.inventory import Identity
from flexserv_operator.quarantine import Crash
from flexserv_operator.replica import Replica
from flexserv_operator.tallies import Tally
from flexserv_operator.unloads import Disown, Unload


@dataclass(frozen=True)
class Declare:
    """Post the declared list."""


@dataclass(frozen=True)
class Load:
    """Start the load of one model."""

    claim: Claim


@dataclass(frozen=True)
class Sync:
    """Tell the pod that everything it should have at its start is in, or has failed."""


Action = Declare | Unload | Disown | Load | Sync


@dataclass(frozen=True)
class Refusal:
    """A claim with settings that the pod does not take, and why."""

    claim: Claim
    message: str
    outdated: bool = False
    """The pod's backend does not even know the setting: it is older than the operator."""

    @property
    def reason(self) -> str:
        """The word of status."""
        return "BackendOutdated" if self.outdated else "SettingsRefused"


@dataclass(frozen=True)
class Memory:
    """What the operator remembers of one pod between cycles. It may be lost: then failures are counted
    anew."""

    instance: str = ""
    in_weights: frozenset[Identity] = frozenset()
    """Models whose weights were being loaded at the last look."""
    attempts: Mapping[Identity, Attempt] = field(default_factory=dict)
    applied: Mapping[Identity, str] = field(default_factory=dict)
    """Claims (by load_key) that the pod says it fulfills, although its inventory names other load-time
    settings."""
    tallies: Mapping[Identity, Tally] = field(default_factory=dict)
    """How often memory pressure took the models."""
    refusals: Mapping[Identity, Refusal] = field(default_factory=dict)
    """Models that are left out of the pod's list: with one of them in it, the pod refuses all of it."""


@dataclass(frozen=True)
class Plan:
    """What to do on the pod, what it looks like meanwhile, and what to remember."""

    actions: tuple[Action, ...]
    replicas: Mapping[Identity, Replica]
    memory: Memory
    crashes: Mapping[Identity, Crash]
    """Deaths of the pod's container during a load that no quarantine record knows yet."""
