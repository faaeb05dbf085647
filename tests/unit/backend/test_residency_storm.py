"""Residency under everything at once: whatever the order, nobody hangs, and nothing is left behind."""

import asyncio
import gc
import random
from collections.abc import Iterator

import pytest
from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.residency import Residency
from hf_transformers_backend.settings import load_settings

from tests.support.eventually import eventually
from tests.support.fake_loader import FakeLoader

NAMES = ("org/a", "org/b", "org/c")
EXPECTED = {"model_unloaded", "model_loading", "superseded", "broken"}
STEPS = 40


@pytest.fixture(autouse=True)
def short_collections() -> Iterator[None]:
    """As the server does: what is there already need not be looked at again with every unload."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def request(residency: Residency, rng: random.Random) -> str | None:
    try:
        lease = await residency.acquire(rng.choice(NAMES))
    except FlexServError as error:
        return error.code
    assert lease.model.identity == lease.identity
    await asyncio.sleep(rng.random() / 50)
    assert lease.model.weights is not None
    lease.release()
    return None


async def disturb(residency: Residency, loader: FakeLoader, rng: random.Random) -> None:
    for _ in range(STEPS):
        name = rng.choice(NAMES)
        match rng.randrange(6):
            case 0:
                await asyncio.to_thread(residency.unload, rng.choice([name, None]))
            case 1:
                await asyncio.to_thread(residency.evict, ModelIdentity(name), "memory")
            case 2:
                residency.load(ModelIdentity(name), {"dtype": rng.choice(["float32", "float16"])})
            case 3:
                residency.load(ModelIdentity(name), {"pin": rng.random() < 0.5, "served_name": None})
            case 4:
                loader.errors[name] = FlexServError("broken on purpose", code="broken")
            case 5:
                loader.errors.pop(name, None)
        await asyncio.sleep(rng.random() / 100)


@pytest.mark.parametrize("seed", range(2))
async def test_requests_and_orders_in_any_order_leave_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    loader = FakeLoader()
    for name in NAMES:
        loader.hold(name).open()
    residency = Residency(load_settings(load_wait=20), loader)
    residency.start()
    try:
        storm = asyncio.create_task(disturb(residency, loader, rng))
        answers: list[str | None] = []
        while not storm.done():
            requests = [asyncio.create_task(request(residency, rng)) for _ in range(6)]
            requests[0].cancel()
            done = await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 30)
            answers += [one for one in done if not isinstance(one, BaseException)]
            for one in done:
                assert not isinstance(one, Exception), one
        await storm
        assert {answer for answer in answers if answer is not None} <= EXPECTED
        assert None in answers
        eventually(lambda: not residency.snapshot().loading and not residency.snapshot().unloading, 30)
        assert all(model.active_requests == 0 for model in residency.snapshot().models)
        residency.unload(None)
        assert residency.snapshot().models == ()
    finally:
        assert await asyncio.to_thread(residency.close, 20)
