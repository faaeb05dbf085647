"""One lane per pod: its last look, its memory, and the visit that is under way. A slow pod only blocks its
own lane."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from flexserv_operator.desired import Claim, Desired
from flexserv_operator.inventory import Identity
from flexserv_operator.plans import Memory
from flexserv_operator.pods import Pod
from flexserv_operator.quarantine import Crash
from flexserv_operator.replica import Replica, unreachable
from flexserv_operator.silence import silence

FORGIVEN_POLLS = 1
"""Looks in a row that may fail before a pod that answered counts as unreachable."""


@dataclass
class Lane:
    """What is known of one pod, and when it is to be looked at again (on the monotonic clock: the other one
    may be set back by hours)."""

    pod: Pod
    asked: Desired | None = None
    """What the last visit began with; another value makes a new visit due."""
    due: float = 0.0
    memory: Memory = field(default_factory=Memory)
    seen: Mapping[Identity, Claim] = field(default_factory=dict)
    """The claims that `replicas` is about."""
    told: Mapping[Identity, Claim] = field(default_factory=dict)
    """The claims that the pod knows of and has taken."""
    replicas: Mapping[Identity, Replica] = field(default_factory=dict)
    crashes: Mapping[Identity, Crash] = field(default_factory=dict)
    silence: Replica | None = None
    """How every model looks while the pod does not answer; None once it does."""
    failed_polls: int = 0
    failed_visits: int = 0
    """Visits in a row that got an answer but could not do everything."""
    visit: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.silence = silence(self.pod, "BackendUnreachable", "the pod has not answered yet")

    @property
    def busy(self) -> bool:
        return self.visit is not None and not self.visit.done()

    @property
    def awaited(self) -> bool:
        """The first answer of a pod is still to come."""
        return self.silence is not None and self.busy and self.failed_polls == 0

    def may_tell(self, claim: Claim) -> bool:
        """Whether it is about to be known what this pod makes of the claim: not yet, but the pod answers."""
        if self.seen.get(claim.identity) == claim:
            return False
        return self.silence is None or self.awaited

    def replica(self, identity: Identity) -> Replica:
        """The model on this pod as last seen."""
        fresh = unreachable("BackendUnreachable", "the pod was not asked about this model yet")
        return self.silence or self.replicas.get(identity, fresh)

    def fell_silent(self, reason: str, message: str, *, lasting: bool = False) -> bool:
        """One more look failed. True if the pod is now known to be silent, and was not before, or for another
        reason."""
        self.failed_polls += 1
        expected = self.pod.starting or self.pod.trouble
        if self.silence is None and self.failed_polls <= FORGIVEN_POLLS and not expected:
            return False
        before, self.silence = self.silence, silence(self.pod, reason, message, lasting=lasting)
        return before != self.silence
