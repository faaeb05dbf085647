"""All that kopf calls. Handlers fill the indexes and mark the loop dirty, nothing else; none of them makes
kopf put a
finalizer or an annotation on an object."""

from typing import Any

import kopf

from flexserv_operator.api_server import PLURAL, ApiServer
from flexserv_operator.cluster import KINDS, Cluster, read_listed, readable
from flexserv_operator.pods import read_pod, read_service
from flexserv_operator.reconcile import Reconciler

GROUP, VERSION = "flexserv.io", "v1alpha1"


def register(
    registry: kopf.OperatorRegistry, cluster: Cluster, reconciler: Reconciler, api: ApiServer
) -> None:
    """Bind the handlers of one operator to `registry`."""
    _register_life(registry, cluster, reconciler, api)

    @kopf.index(GROUP, VERSION, PLURAL, registry=registry, id=PLURAL)
    async def flexservmodels(body: kopf.Body, uid: str, **_: Any) -> dict[str, Any]:
        return {uid: readable(read_listed, body)}

    @kopf.index("v1", "pods", registry=registry, id="pods")
    async def pods(body: kopf.Body, uid: str, **_: Any) -> dict[str, Any]:
        return {uid: readable(read_pod, body)}

    @kopf.index("v1", "services", registry=registry, id="services")
    async def services(body: kopf.Body, uid: str, **_: Any) -> dict[str, Any]:
        return {uid: readable(read_service, body)}

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry, id="changed")
    @kopf.on.event("v1", "pods", registry=registry, id="changed")
    @kopf.on.event("v1", "services", registry=registry, id="changed")
    async def changed(event: kopf.RawEvent, **_: Any) -> None:
        # An event without a type comes from a list: deletions before it went unseen.
        reconciler.mark_dirty(listed_anew=event["type"] is None)


def _register_life(
    registry: kopf.OperatorRegistry, cluster: Cluster, reconciler: Reconciler, api: ApiServer
) -> None:
    """Login, start, stop and liveness."""

    @kopf.on.login(registry=registry, id="login")
    async def login(**_: Any) -> kopf.ConnectionInfo:
        access = await api.access()
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_path,
            token=access.token,
            certificate_path=access.certificate_path,
            private_key_path=access.private_key_path,
        )

    @kopf.on.startup(registry=registry, id="start")
    async def start(**kwargs: Any) -> None:
        cluster.attach({kind: kwargs[kind] for kind in KINDS})
        reconciler.start()

    @kopf.on.cleanup(registry=registry, id="stop")
    async def stop(**_: Any) -> None:
        await reconciler.stop()

    @kopf.on.probe(registry=registry, id="loop")
    async def loop(**_: Any) -> dict[str, float]:
        if not reconciler.alive:
            raise kopf.PermanentError(f"no whole cycle for {reconciler.silent_for:.0f} s")
        return {"seconds_since_last_cycle": round(reconciler.silent_for, 1)}
