"""What the API server says: FlexServModels, Services and pods of one namespace, as kopf's indexes give them.

An index may miss what came a moment ago, and it keeps what was deleted while a watch was broken. So the
whole is only
used once it has been compared with a list straight from the API server; `compare` repairs both.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

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


@dataclass(frozen=True)
class View:
    """One consistent look: what one backend should hold, and on which pods."""

    desired: Desired
    service: Service | None
    """None if the backend's Service does not exist."""
    pods: tuple[Pod, ...]
    strays: tuple[Model, ...]
    """FlexServModels that name a Service which does not exist."""
    statuses: Mapping[str, Mapping[str, Any]]
    """What the API server has as status, by uid."""


class Cluster:
    """The indexes of one namespace, and what they mean for one backend Service."""

    def __init__(self, namespace: str, backend_service: str, adopt_unreferenced: bool) -> None:
        self.namespace = namespace
        self.backend_service = backend_service
        self._adopts = adopt_unreferenced
        self._indexes: Mapping[str, Index] = {}
        self._ghosts: set[str] = set()
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
        ours: list[Model] = []
        foreign: list[str] = []
        strays: list[Model] = []
        statuses: dict[str, Mapping[str, Any]] = {}
        for model, status in self._values("flexservmodels"):
            statuses[model.uid] = status
            if self._handles(model):
                ours.append(model)
            else:
                foreign.append(model.uid)
                if model.backend and model.backend not in services:
                    strays.append(model)
        foreign += self._unreadable("flexservmodels")
        pods = [pod for pod in self._values("pods") if service and _selects(service, pod)]
        return View(
            desired=merge(self.namespace, ours, foreign),
            service=service,
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            strays=tuple(strays),
            statuses=statuses,
        )

    def _handles(self, model: Model) -> bool:
        return model.backend == self.backend_service if model.backend else self._adopts

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


def read_listed(body: Mapping[str, Any]) -> tuple[Model, Mapping[str, Any]]:
    """The value of a FlexServModel, and its status beside it: the operator's own writes change only the
    latter."""
    return read_model(body), body.get("status") or {}
