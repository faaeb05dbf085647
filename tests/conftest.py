"""Rules for every test: where models and tools are, and that in CI nothing is skipped."""

import os
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache" / "flexserv"))
TOOLS = [CACHE / "bin", CACHE / "debian" / "usr" / "bin", CACHE / "debian" / "usr" / "sbin"]
os.environ["PATH"] = os.pathsep.join([*map(str, TOOLS), os.environ["PATH"]])
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Torch's threads spin while they wait, which makes generating ten times slower on a busy machine. It reads
# this when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the tests marked `full`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --full its tests are deselected, not skipped: a skip means that something is missing."""
    if config.getoption("--full"):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    if full:
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if item not in full]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """With CI=true a skipped test is a failed one: what is required must run."""
    report = yield
    if (
        report.skipped
        and not hasattr(report, "wasxfail")
        and os.environ.get("CI", "").lower() in ("true", "1")
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI allows no skips: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of small real models that `make models` fills."""
    folder = Path(os.environ.get("FLEXSERV_TEST_MODELS", CACHE / "models"))
    if not (folder / "SmolLM2-135M-Instruct").is_dir():
        pytest.fail(f"no models in {folder}: run `make models`")
    return folder
