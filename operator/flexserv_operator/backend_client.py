"""The operator's side of the backend's HTTP contract. One pod at a time, on its own address, always in
bounded time."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import ValidationError

from flexserv_operator.errors import BackendError, BackendIncredible, BackendRefused, BackendUnreachable
from flexserv_operator.inventory import Identity, Inventory

MAX_ANSWER_BYTES = 8 * 2**20
MAX_MESSAGE_CHARS = 300
MAX_CODE_CHARS = 64
_ENTRY = re.compile(r"models\[(\d{1,6})\]")


class BackendClient:
    """Calls backend pods. Every call ends within `timeout` seconds and raises only BackendError."""

    def __init__(self, timeout: float, admin_token_file: Path | None = None) -> None:
        self._timeout = timeout
        self._admin_token_file = admin_token_file
        # No proxy of the environment: pods are spoken to directly. No pool that pods which hang could fill.
        self._http = httpx.AsyncClient(
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def inventory(self, url: str, pod_uid: str) -> Inventory:
        """What the pod at `url` holds. Raises BackendIncredible if another pod than `pod_uid` answers
        there."""
        _, content = await self._call("GET", url, "/v1/flexserv/models/loaded", None, {})
        try:
            inventory = Inventory.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the whole answer"
            raise BackendIncredible(f"its inventory breaks the contract at {place}: {first['msg']}") from None
        if inventory.pod_uid != pod_uid:
            raise BackendIncredible(
                f"its address answers for pod uid {inventory.pod_uid}, expected {pod_uid}"
            )
        return inventory

    async def declare(self, url: str, instance: str, declaration: Mapping[str, Any]) -> None:
        """Replace the list of models that requests may load, with their live settings."""
        await self._post(url, "/v1/flexserv/declared", instance, declaration)

    async def load(self, url: str, instance: str, request: Mapping[str, Any]) -> Literal["loaded", "started"]:
        """Ask for a load and do not wait for it. "loaded" means that there was nothing to do."""
        status, _ = await self._post(url, "/v1/flexserv/models/load", instance, request)
        return "loaded" if status == 200 else "started"

    async def unload(self, url: str, instance: str, identity: Identity) -> None:
        """Unload one model, or abort its load; fine if it is not there."""
        await self._post(url, "/v1/flexserv/models/unload", instance, _named(identity))

    async def disown(self, url: str, instance: str, identity: Identity) -> None:
        """Leave a model where it is, without owner and pin."""
        await self._post(
            url, "/v1/flexserv/models/load", instance, {**_named(identity), "owner": None, "pin": False}
        )

    async def synced(self, url: str, instance: str) -> None:
        """Tell the pod that what it should have at its start is in, or has failed."""
        await self._post(url, "/v1/flexserv/synced", instance, None)

    async def _post(
        self, url: str, path: str, instance: str, body: Mapping[str, Any] | None
    ) -> tuple[int, Any]:
        return await self._call("POST", url, path, body, {"X-FlexServ-Instance": instance})

    async def _call(
        self, method: str, url: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        request = self._http.build_request(
            method, url + path, json=body, headers={**headers, **self._authorization()}
        )
        try:
            # httpx bounds each read; a pod that sends a byte now and then needs a bound over all of them.
            async with asyncio.timeout(self._timeout):
                response = await self._http.send(request, stream=True)
                try:
                    content = await _read(response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            raise BackendUnreachable(f"no answer to {method} {path} within {self._timeout:g} s") from None
        except httpx.TransportError as error:
            raise BackendUnreachable(f"{method} {path} failed: {error or type(error).__name__}") from error
        if not response.is_success:
            raise _refusal(response.status_code, content)
        return response.status_code, content

    def _authorization(self) -> dict[str, str]:
        if self._admin_token_file is None:
            return {}
        try:
            token = self._admin_token_file.read_text("ascii").strip()
        except (OSError, UnicodeError) as error:
            raise BackendError(f"cannot read the admin token: {error}") from error
        return {"Authorization": f"Bearer {token}"}


def _named(identity: Identity) -> dict[str, Any]:
    """An identity in a request body. The revision is sent also when it is null, which means the default
    branch."""
    return {"model_id": identity.model_id, "kind": identity.kind, "revision": identity.revision}


async def _read(response: httpx.Response) -> Any:
    """The JSON of an answer, None if it is none; what is compressed is none, for nobody asked for that."""
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise BackendIncredible(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _refusal(status: int, content: Any) -> BackendRefused:
    """An error answer, whatever is left of the contract in it."""
    error = content.get("error") if isinstance(content, dict) else None
    fields = error if isinstance(error, dict) else {}
    message = _plain(fields.get("message") or "no message", MAX_MESSAGE_CHARS)
    place = _ENTRY.match(str(fields.get("param")))
    entry = int(place[1]) if place else None
    return BackendRefused(
        status, _plain(fields.get("code") or f"http_{status}", MAX_CODE_CHARS), message, entry
    )


def _plain(value: Any, longest: int) -> str:
    """Text that every log, status and Event takes: JSON may bring halves of characters."""
    return str(value)[:longest].encode("utf-8", "replace").decode()
