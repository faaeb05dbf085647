"""With a cache that all pods share: one pod fetches a model's files, and the others wait for them. Pure.

A pod's turn ends when it has the files, when its load ended otherwise, when the pod is gone, silent or
another instance, and at the latest after the load timeout. Times are seconds of the epoch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flexserv_operator.desired import Claim
from flexserv_operator.inventory import Identity, Inventory


class Files(NamedTuple):
    """What is fetched: all kinds of one model share it."""

    model_id: str
    revision: str | None

    @classmethod
    def of(cls, identity: Identity) -> "Files | None":
        """None for a folder in the pod: there is nothing to fetch."""
        if identity.model_id.startswith("/"):
            return None
        return cls(identity.model_id, identity.revision)


@dataclass(frozen=True)
class Turn:
    """Who is fetching, and since when."""

    pod_uid: str
    pod_name: str
    instance: str
    since: float


class Fetches:
    """Which files are in the shared cache and who is bringing the others, as far as the pods tell.

    Nothing is kept: a new operator learns it from the pods, and lets nobody fetch before it has heard of all.
    """

    def __init__(self) -> None:
        self._present: set[Files] = set()
        self._turns: dict[Files, Turn] = {}
        self._unheard: set[str] = set()

    def expect(self, pod_uid: str) -> None:
        """A pod that was not looked at yet: it may be fetching."""
        self._unheard.add(pod_uid)

    def lost(self, pod_uid: str) -> None:
        """The pod is gone, or tells nothing: nobody waits for it."""
        self._unheard.discard(pod_uid)
        self._turns = {files: turn for files, turn in self._turns.items() if turn.pod_uid != pod_uid}

    def saw(self, pod_uid: str, pod_name: str, inventory: Inventory, now: float) -> None:
        """Learn from a pod's inventory what is there, and what it fetches or does not fetch any more."""
        self._unheard.discard(pod_uid)
        self._present |= _present(inventory)
        fetching = {
            files for load in inventory.loading if (files := Files.of(load.identity)) is not None
        } - self._present
        for files, turn in list(self._turns.items()):
            ended = turn.pod_uid == pod_uid and (
                turn.instance != inventory.instance_id or files not in fetching
            )
            if ended or files in self._present:
                del self._turns[files]
        for files in fetching:
            self._turns.setdefault(files, Turn(pod_uid, pod_name, inventory.instance_id, now))

    def elsewhere(self, pod_uid: str, claims: Iterable[Claim], now: float) -> dict[Identity, str]:
        """The models whose files this pod must leave to others for now, and why."""
        left: dict[Identity, str] = {}
        for claim in claims:
            files = Files.of(claim.identity)
            if files is None or files in self._present:
                continue
            turn = self._turns.get(files)
            if turn is None:
                if self._unheard - {pod_uid}:
                    left[claim.identity] = "waits until every pod was asked for the files"
            elif turn.pod_uid != pod_uid and now - turn.since < claim.load_timeout:
                left[claim.identity] = (
                    f"waits for {turn.pod_name}, which fetches the files into the shared cache"
                )
        return left

    def begin(self, pod_uid: str, pod_name: str, instance: str, claim: Claim, now: float) -> None:
        """The pod is about to be asked for the load."""
        files = Files.of(claim.identity)
        if files is not None and files not in self._present:
            self._turns[files] = Turn(pod_uid, pod_name, instance, now)

    def keep_only(self, claimed: Iterable[Identity]) -> None:
        """Forget what nobody claims any more."""
        wanted = {Files.of(identity) for identity in claimed}
        self._present = {files for files in self._present if files in wanted}


def _present(inventory: Inventory) -> set[Files]:
    """What must have been fetched, or the pod could not be where it is."""
    identities = [model.identity for model in inventory.models]
    identities += [
        load.identity
        for load in inventory.loading
        if load.stage == "weights" or (load.stage == "queued" and load.started_at is not None)
    ]
    return {files for identity in identities if (files := Files.of(identity)) is not None}


NOBODY: Mapping[Identity, str] = {}
"""Every pod has a cache of its own: nothing is left to others."""
