"""What the API server says: FlexServModels, Services and pods of one namespace, as kopf's indexes give them.

An index may miss what came a moment ago, and it keeps what was deleted while a watch was broken. So the
whole is only
used once it has been compared with a list straight from the API server; `compare` repairs both.
"""

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from flexserv_operator.adoption import adopters
from flexserv_operator.claims import merge
from flexserv_operator.desired import Desired, Model, read_model
from flexserv_operator.pods import Pod, Service

logger = logging.getLogger(__name__)

T = TypeVar("T")
KINDS = ("flexservmodels", "pods", "services")


class Index(Protocol):
    """A kopf index with one value per key; the keys are uids."""

    def __iter__(self) -> Any: ...
    def __contains__(self, key: object) -> bool: ...
    def __getitem__(self, key: str) -> Collection[Any]: ...


class Listed(NamedTuple):
    """A FlexServModel as the API server has it. The operator's own writes change the status and the version
    only."""

    model: Model
    status: Mapping[str, Any]
    version: str
    """metadata.resourceVersion."""


@dataclass(frozen=True)
class View:
    """One consistent look: what one backend should hold, and on which pods."""

    desired: Desired
    service: Service | None
    """None if the backend's Service does not exist."""
    pods: tuple[Pod, ...]
    strays: tuple[Model, ...]
    """FlexServModels that name a Service which does not exist."""
    released: tuple[Model, ...]
    """FlexServModels that were adopted, by an operator that does not adopt any more."""
    listed: Mapping[str, Listed]
    """What the API server has, by uid."""


class Cluster:
    """The indexes of one namespace, and what they mean for one backend Service."""

    def __init__(self, namespace: str, backend_service: str, adopt_unreferenced: bool) -> None:
        self.namespace = namespace
        self.backend_service = backend_service
        self._adopts = adopt_unreferenced
        self._indexes: Mapping[str, Index] = {}
        self._ghosts: set[str] = set()
        self._others: set[str] = set()
        self.complete = False

    def attach(self, indexes: Mapping[str, Index]) -> None:
        """Take over the indexes, by the plural names in KINDS."""
        self._indexes = indexes

    def known(self) -> set[str]:
        """The uids of everything indexed."""
        return {uid for index in self._indexes.values() for uid in index}

    def compare(self, known_before: Iterable[str], listed: Collection[str]) -> None:
        """Learn from a list what the indexes keep wrongly, and whether they miss something.

        `known_before` was indexed before the list was asked for: what is newer may rightly not be in it.
        """
        known = self.known()
        self._ghosts = (self._ghosts | (set(known_before) - set(listed))) & known
        self.complete = self.complete or known.issuperset(listed)

    def view(self) -> View:
        """What is known now."""
        services = {service.name: service for service in self._values("services")}
        service = services.get(self.backend_service)
        listed: dict[str, Listed] = {each.model.uid: each for each in self._values("flexservmodels")}
        adopted, released = self._adopt(listed.values(), services)
        ours: list[Model] = []
        foreign: list[str] = []
        strays: list[Model] = []
        for uid, (model, _, _) in listed.items():
            if uid in adopted or model.backend == self.backend_service:
                ours.append(model)
            elif model.backend:
                foreign.append(uid)
                if model.backend not in services:
                    strays.append(model)
        foreign += self._unreadable("flexservmodels")
        pods = [pod for pod in self._values("pods") if service and _selects(service, pod)]
        return View(
            desired=merge(self.namespace, ours, foreign),
            service=service,
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            strays=tuple(strays),
            released=tuple(released),
            listed=listed,
        )

    def _adopt(
        self, listed: Iterable[Listed], services: Container[str]
    ) -> tuple[Collection[str], Collection[Model]]:
        """Of those that name no backend: the uids of ours, and what was ours before this operator was told
        not to adopt."""
        unreferenced = [
            (each.model, each.status.get("backend")) for each in listed if each.model.backend is None
        ]
        if not self._adopts:
            return (), [model for model, claim in unreferenced if claim == self.backend_service]
        owners = adopters(unreferenced, self.backend_service, services)
        others = set(owners.values()) - {self.backend_service}
        for other in sorted(others - self._others):
            logger.warning(
                "FlexServModels without spec.backendRef are left to the operator of Service %s, which their"
                " status.backend names: only one operator of a namespace should have --adopt-unreferenced",
                other,
            )
        self._others = others
        return {uid for uid, owner in owners.items() if owner == self.backend_service}, ()

    def _values(self, kind: str) -> Iterable[Any]:
        index = self._indexes[kind]
        for uid in list(index):
            if uid not in self._ghosts:
                yield from (value for value in index[uid] if value is not None)

    def _unreadable(self, kind: str) -> list[str]:
        """The uids of objects that could not be read: what they claim is unknown, and nothing of theirs is
        touched."""
        index = self._indexes[kind]
        return [uid for uid in list(index) if None in list(index[uid])]


def _selects(service: Service, pod: Pod) -> bool:
    return not pod.gone and bool(service.selector) and service.selector.items() <= pod.labels.items()


def readable(read: Callable[[Mapping[str, Any]], T], body: Mapping[str, Any]) -> T | None:
    """What `read` makes of an object; None for one that breaks its schema, so that it stops nobody else."""
    try:
        return read(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        metadata = body.get("metadata") or {}
        logger.error("cannot read %s %s: %r", body.get("kind"), metadata.get("name"), error)
        return None


def read_listed(body: Mapping[str, Any]) -> Listed:
    """A FlexServModel as it came from the API server."""
    return Listed(read_model(body), body.get("status") or {}, body["metadata"]["resourceVersion"])
