"""Connections to hosts that a request names.

A request must not make this server visit what only this server can reach. So the addresses of a host are
checked where the connection is made, for every redirect anew, and the address that was checked is the one
that is connected to; TLS still verifies the host's name.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpcore2

from hf_transformers_backend.generation.addresses import is_public
from hf_transformers_backend.generation.resolver import Resolve


class AddressRefused(Exception):
    """The host has an address that is not public."""


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses that it has looked up and checked itself, and to nothing else."""

    def __init__(self, resolve: Resolve, network: httpcore2.AsyncNetworkBackend, *, public: bool) -> None:
        self._resolve = resolve
        self._network = network
        self._public = public

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that takes it. Raises AddressRefused if any is not public."""
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError("the name cannot be resolved") from error
        if self._public and not all(map(is_public, addresses)):
            raise AddressRefused
        failure: Exception = httpcore2.ConnectError("the name has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Never."""
        raise AddressRefused

    async def sleep(self, seconds: float) -> None:
        """For retries, of which there are none."""
        await asyncio.sleep(seconds)
