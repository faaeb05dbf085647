"""Host names behind a name server that says nothing: only those who asked wait, and not for long."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation import resolver
from hf_transformers_backend.generation.image_fetch import ImageFetcher
from hf_transformers_backend.generation.resolver import AT_ONCE, Resolver

from tests.support.eventually import eventually

SILENT = "silent.example"
MANY = 60
"""More than the threads that an event loop lends to everybody, on machines with many cores, too."""


class SilentNameServer:
    """Says nothing about SILENT until `answer`; `asking` are the threads that wait for it."""

    def __init__(self, system: Callable[..., Any]) -> None:
        self.answer = threading.Event()
        self.asking: list[threading.Thread] = []
        self._system = system

    @property
    def alive(self) -> list[threading.Thread]:
        return [thread for thread in self.asking if thread.is_alive()]

    def __call__(self, host: Any, *args: Any, **options: Any) -> Any:
        if host != SILENT:
            return self._system(host, *args, **options)
        self.asking.append(threading.current_thread())
        assert self.answer.wait(120)
        raise socket.gaierror(socket.EAI_NONAME, "no such host")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentNameServer]:
    server = SilentNameServer(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answer.set()
    eventually(lambda: server.alive == [], 20)


def fetcher() -> ImageFetcher:
    return ImageFetcher("any", 1000, tls=ssl.create_default_context())


async def until(happened: Callable[[], bool]) -> None:
    """Wait on the loop itself: its threads may all be taken, which is what is tested."""
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.01)


async def test_look_ups_that_hang_leave_the_threads_of_the_loop_to_others(names: SilentNameServer) -> None:
    images = fetcher()
    fetches = [asyncio.create_task(images.fetch([("here", f"http://{SILENT}/{i}.png")])) for i in range(MANY)]
    await until(lambda: len(names.asking) >= AT_ONCE)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 20) == "done"
    assert len(names.asking) == AT_ONCE
    images.close()
    for fetch in fetches:
        fetch.cancel()
    await asyncio.gather(*fetches, return_exceptions=True)
    assert len(names.alive) == AT_ONCE, "to close it is not to wait for those that hang"
    names.answer.set()
    await until(lambda: names.alive == [])
    assert len(names.asking) == AT_ONCE, "who waited for a thread is not looked up any more"


async def test_who_asks_waits_a_bounded_time_for_a_thread_too(
    names: SilentNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "LOOKUP_SECONDS", 0.2)
    images = fetcher()
    fetches = [images.fetch([("here", f"http://{SILENT}/{i}.png")]) for i in range(2 * AT_ONCE)]
    ends = await asyncio.wait_for(asyncio.gather(*fetches, return_exceptions=True), 15)
    images.close()
    assert {type(end) for end in ends} == {BadRequest}
    assert "could not be reached" in str(ends[-1])


async def test_known_names_are_answered_until_it_is_closed(names: SilentNameServer) -> None:
    ask = Resolver()
    assert "127.0.0.1" in await ask("127.0.0.1", 80)
    ask.close()
    with pytest.raises(OSError, match="closed"):
        await ask("127.0.0.1", 80)
