"""One real server for the tests that leave it as they found it: no default model, all may be loaded."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunningServer

BODY_LIMIT = 1_000_000


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    flags = ["--device", "cpu", "--max-request-bytes", str(BODY_LIMIT)]
    # Where transformers copies the code that comes with a model.
    modules = {"HF_MODULES_CACHE": str(tmp_path_factory.mktemp("modules"))}
    with RunningServer(*flags, env=modules) as server:
        yield server


@pytest.fixture(scope="session")
def odd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Audio packages that do not import are installed beside it, and it fetches images from anywhere."""
    packages = tmp_path_factory.mktemp("packages")
    for name in ("torchaudio", "librosa"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("raise OSError('libc10_cuda.so: cannot open')\n")
    flags = ["--device", "cpu", "--image-hosts", "any"]
    with RunningServer(*flags, env={"PYTHONPATH": str(packages)}) as server:
        yield server


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    """The shared server, empty."""
    reset = shared_server.client.post("/reset")
    assert reset.status_code == 200, reset.text
    shared_server.client.post("/v1/flexserv/declared", json={"models": [], "hash": "none"}).raise_for_status()
    return shared_server
