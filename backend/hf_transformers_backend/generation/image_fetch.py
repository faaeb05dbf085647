"""Images that a request names by an http(s) address, fetched within limits.

Proxies of the environment are not used: they would look names up themselves, and nothing could be checked.
"""

import asyncio
import ssl
from collections.abc import Iterable

import httpcore2
import httpx2

from hf_transformers_backend import __version__
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.checked_network import AddressRefused, CheckedNetwork
from hf_transformers_backend.generation.resolver import Resolve, Resolver
from hf_transformers_backend.settings import ImageHosts

FETCH_SECONDS = 20.0
"""For all images of a request together, redirects included."""
MOST_REDIRECTS = 3
MOST_IMAGES = 32
AT_ONCE = 4
_REDIRECTS = (301, 302, 303, 307, 308)
_UNTYPED = ("", "application/octet-stream", "binary/octet-stream")
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": f"FlexServ/{__version__}",
    "Accept": "image/*",
    "Accept-Encoding": "identity",
    "Connection": "close",
}


def is_remote(url: str) -> bool:
    """Whether an image is named by an address that would have to be fetched."""
    return url[:8].lower().startswith(("http://", "https://"))


class ImageFetcher:
    """Fetches the images of requests. `limit_bytes` holds for all images of a request together, `hosts` says
    whether they may be anywhere (any), on the public internet (public), or are not fetched at all (off).
    Who makes it closes it.
    """

    def __init__(
        self,
        hosts: ImageHosts,
        limit_bytes: int,
        *,
        resolve: Resolve | None = None,
        network: httpcore2.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._hosts = hosts
        self._limit_bytes = limit_bytes
        self._resolver = Resolver()
        self._network = CheckedNetwork(
            resolve or self._resolver, network or httpcore2.AnyIOBackend(), public=hosts == "public"
        )
        self._tls = tls

    def close(self) -> None:
        """Fetch nothing more from a host that has a name. Waits for nothing."""
        self._resolver.close()

    async def fetch(self, images: Iterable[tuple[str, str]]) -> dict[str, bytes]:
        """The bytes behind each http(s) address among (where, url). Raises BadRequest naming the place."""
        remote = {url: where for where, url in images if is_remote(url)}
        if not remote:
            return {}
        first = next(iter(remote.values()))
        if self._hosts == "off":
            raise _refused(
                first,
                "this server fetches no images (--image-hosts off); send a data:image/...;base64,... URI",
            )
        if len(remote) > MOST_IMAGES:
            raise _refused(first, f"at most {MOST_IMAGES} images of a request are fetched")
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)
        budget = Budget(self._limit_bytes)
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                httpcore2.AsyncConnectionPool(
                    self._tls, max_connections=AT_ONCE, network_backend=self._network
                ) as pool,
            ):
                tasks: dict[str, asyncio.Task[bytes]] = {}
                async with asyncio.TaskGroup() as group:
                    for url, where in remote.items():
                        tasks[url] = group.create_task(_fetch_one(pool, url, where, budget))
        except TimeoutError:
            raise _refused(first, f"the image did not come within {FETCH_SECONDS:g} s") from None
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {url: task.result() for url, task in tasks.items()}


class Budget:
    """Bytes that may still come."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._left = limit

    def take(self, count: int) -> bool:
        """False when that is more than what is left."""
        self._left -= count
        return self._left >= 0


NO_IMAGES = ImageFetcher("off", 0)
"""For those who have no settings: images come inside of the request only."""


async def _fetch_one(pool: httpcore2.AsyncConnectionPool, url: str, where: str, budget: Budget) -> bytes:
    try:
        target = httpx2.URL(url)
        for _ in range(MOST_REDIRECTS + 1):
            _check(target, where)
            async with pool.stream("GET", _raw(target), headers=_HEADERS) as response:
                headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECTS and b"location" in headers:
                    target = target.join(headers[b"location"])
                    continue
                if response.status != 200:
                    raise _refused(where, f"the image's server answered with status {response.status}")
                return await _body(response, headers, where, budget)
    except AddressRefused:
        raise _refused(
            where,
            "the image's host is not on the public internet, and this server does not fetch from elsewhere "
            "(--image-hosts public); send the image itself as a data:image/...;base64,... URI",
        ) from None
    except httpx2.InvalidURL:
        raise _refused(where, "the image's address is not a valid URL") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, ssl.SSLError):
        raise _refused(where, "the image's server could not be reached, or broke off") from None
    raise _refused(where, f"more than {MOST_REDIRECTS} redirects")


def _check(url: httpx2.URL, where: str) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise _refused(where, "only http and https addresses are fetched, also by redirects")
    if url.port is not None and not 0 < url.port < 65536:
        raise _refused(where, "the image's address is not a valid URL")
    if url.userinfo:
        raise _refused(where, "the image's address must not carry credentials")


def _raw(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


async def _body(response: httpcore2.Response, headers: dict[bytes, str], where: str, budget: Budget) -> bytes:
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if kind not in _UNTYPED and not kind.startswith("image/"):
        raise _refused(where, f"the address is of {kind}, not of an image")
    length = headers.get(b"content-length", "")
    data = bytearray()
    fits = not length.isdigit() or int(length) <= budget.limit
    if fits:
        async for chunk in response.aiter_stream():
            fits = budget.take(len(chunk))
            if not fits:
                break
            data += chunk
    if not fits:
        raise _refused(
            where,
            f"the images are larger than {budget.limit} bytes together, this server's --max-request-bytes",
        )
    return bytes(data)


def _refused(where: str, what: str) -> BadRequest:
    return BadRequest(f"{where}: {what}", param=where)
