"""The operator's own calls to the API server, beside the watches: what exists, status writes, Events."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import kr8s
import kr8s.asyncio

from flexserv_operator.desired import Model
from flexserv_operator.errors import (
    ApiServerError,
    ApiServerForbids,
    ApiServerUnreachable,
    NotServed,
    ObjectChanged,
    ObjectGone,
)

GROUP_VERSION = "flexserv.io/v1alpha1"
PLURAL = "flexservmodels"
TIMEOUT_S = 10
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_KINDS: dict[int, type[ApiServerError]] = {
    401: ApiServerForbids,
    403: ApiServerForbids,
    404: ObjectGone,
    409: ObjectChanged,
    429: ApiServerUnreachable,
}


@dataclass(frozen=True)
class Access:
    """Where the API server is and how to log in there."""

    server: str
    ca_path: str | None
    token: str | None
    certificate_path: str | None
    private_key_path: str | None


class ApiServer:
    """One namespace of one API server. Every call ends in bounded time and raises only ApiServerError."""

    def __init__(self, api: kr8s.asyncio.Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    @classmethod
    async def connect(cls, namespace: str) -> "ApiServer":
        """Log in with $KUBECONFIG or the pod's service account. Raises NotServed if there is no API
        server."""
        try:
            async with _translated():
                api = await kr8s.asyncio.api()
        except (AttributeError, KeyError, TypeError, ValueError, ApiServerError) as error:
            raise NotServed(
                f"cannot log in to the API server: {error}; in a pod, mount its service account token,"
                " elsewhere set KUBECONFIG"
            ) from error
        api.timeout = TIMEOUT_S
        return cls(api, namespace)

    async def access(self) -> Access:
        """Fresh credentials, for the watches as well; a service account's token is read again from its
        file."""
        auth = self._api.auth
        await auth.reauthenticate()
        return Access(
            server=str(auth.server),
            ca_path=_text(auth.server_ca_file),
            token=auth.token.strip() if auth.token else None,
            certificate_path=_text(auth.client_cert_file),
            private_key_path=_text(auth.client_key_file),
        )

    async def require_crd(self) -> None:
        """Raise NotServed unless FlexServModels can be listed here."""
        try:
            await self.uids(PLURAL, GROUP_VERSION)
        except ObjectGone:
            raise NotServed(
                f"the API server does not serve {PLURAL} in {GROUP_VERSION}: install the CRD"
                " (Helm value crds.enabled); exiting, so that this is tried again"
            ) from None
        except ApiServerError as error:
            raise NotServed(f"cannot list {PLURAL} in namespace {self._namespace}: {error}") from error

    async def uids(self, plural: str, version: str = "v1") -> set[str]:
        """The uids of all objects of a kind in the namespace, straight from the API server."""
        async with (
            _translated(),
            self._api.call_api(
                "GET",
                version=version,
                namespace=self._namespace,
                url=plural,
                headers={"Accept": METADATA_ONLY},
            ) as response,
        ):
            return {item["metadata"]["uid"] for item in response.json()["items"] or ()}

    async def patch_status(self, model: Model, patch: Mapping[str, Any], version: str) -> None:
        """Merge `patch` into the status of the object as it was at that resourceVersion. (A uid would not do:
        a write of a status ignores it, and a later object of the same name would get the status.)

        Raises ObjectGone, ObjectChanged.
        """
        async with (
            _translated(),
            self._api.call_api(
                "PATCH",
                version=GROUP_VERSION,
                namespace=self._namespace,
                url=f"{PLURAL}/{model.name}/status",
                headers={"Content-Type": "application/merge-patch+json"},
                json={"metadata": {"resourceVersion": version}, "status": dict(patch)},
            ),
        ):
            pass

    async def post_event(self, model: Model, kind: str, reason: str, message: str) -> None:
        """Record an Event (`kind` is Normal or Warning) on the object."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{model.name}.{time.time_ns():x}", "namespace": self._namespace},
            "involvedObject": {
                "apiVersion": GROUP_VERSION,
                "kind": "FlexServModel",
                "namespace": model.namespace,
                "name": model.name,
                "uid": model.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "flexserv-operator"},
            "reportingComponent": "flexserv-operator",
        }
        async with (
            _translated(),
            self._api.call_api("POST", version="v1", namespace=self._namespace, url="events", json=body),
        ):
            pass


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Bound a call, and turn what the client library raises into the operator's own errors."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield
    except kr8s.ServerError as error:
        status = error.response.status_code if error.response is not None else 0
        otherwise = ApiServerUnreachable if status >= 500 else ApiServerError
        raise _KINDS.get(status, otherwise)(f"{status}: {error}") from error
    except (kr8s.APITimeoutError, httpx.HTTPError, OSError, RuntimeError) as error:
        # RuntimeError: a new login closed the connections while this call was using them.
        raise ApiServerUnreachable(f"{type(error).__name__}: {error}") from error
    except (LookupError, TypeError, ValueError) as error:
        # Something in between answered, in a form that the client library does not look for.
        raise ApiServerError(f"no answer of an API server: {type(error).__name__}: {error}") from error


def _text(path: Any) -> str | None:
    return str(path) if path else None
