"""One installation of this tree's images and chart per file, on the running cluster.

A file names its namespace in NAMESPACE, and in VALUES what its installation has beyond the demo's values.
CHART and CHART_VALUES are another chart than that of this tree, and the values for it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installation import Installation
from kube import Kube, kubeconfig

from tests.support.crafted_models import Crafts, crafted
from tests.support.library import greedy_chat


@pytest.fixture(scope="module")
def installation(request: pytest.FixtureRequest) -> Iterator[Installation]:
    """A `restricted` namespace with the chart installed and every pod Ready; removed at the end."""
    installed = Installation(Kube(kubeconfig(), request.module.NAMESPACE))
    installed.prepare()
    module = request.module
    names = {"chart": "CHART", "values": "CHART_VALUES"}
    other = {what: getattr(module, name) for what, name in names.items() if hasattr(module, name)}
    installed.install(*getattr(module, "VALUES", ()), **other)
    yield installed
    installed.remove()


@pytest.fixture(scope="module")
def kube(installation: Installation) -> Kube:
    return installation.kube


@pytest.fixture(scope="module")
def crafts(models: Path) -> Iterator[Crafts]:
    """Model folders of the tests' own making, under /models in the pods."""
    with crafted(models) as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """On a failure, show what the cluster says: objects, events, and the ends of the logs."""
    report = yield
    if report.failed:
        report.sections.append(("cluster", _situation(item.module.NAMESPACE)))
    return report


def _situation(namespace: str) -> str:
    parts = []
    for command in (
        ("get", "pods,services,fsm", "-o", "wide"),
        ("get", "fsm", "-o", "yaml"),
        ("describe", "pods", "-l", "app.kubernetes.io/component=backend"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/component=backend", "--tail=60", "--prefix"),
        ("logs", "-l", "app.kubernetes.io/component=backend", "--tail=40", "--prefix", "--previous"),
        ("logs", "-l", "app.kubernetes.io/component=operator", "--tail=60", "--prefix"),
    ):
        try:
            said = Kube(kubeconfig(), namespace).kubectl(*command)[-6000:]
        except Exception as error:
            said = str(error)
        parts.append(f"$ kubectl {' '.join(command)}\n{said}")
    return "\n".join(parts)


@pytest.fixture(scope="session")
def library_answer(models: Path) -> Callable[..., str]:
    """The greedy answer of SmolLM2 to a question, computed by the library in this process."""

    def answer(question: str, max_new_tokens: int) -> str:
        return greedy_chat(models / "SmolLM2-135M-Instruct", question, max_new_tokens)

    return answer
