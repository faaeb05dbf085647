"""One installation of this tree's images and chart on the running cluster, shared by the whole e2e suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installation import Installation
from kube import Kube, kubeconfig

from tests.support.library import greedy_chat


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """A `restricted` namespace with the chart installed and every pod Ready; removed at the end."""
    installed = Installation(Kube(kubeconfig(), "flexserv-e2e"))
    installed.prepare()
    installed.install()
    yield installed
    installed.remove()


@pytest.fixture(scope="session")
def kube(installation: Installation) -> Kube:
    return installation.kube


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """On a failure, show what the cluster says: objects, events, and the ends of the logs."""
    report = yield
    if report.failed:
        report.sections.append(("cluster", _situation()))
    return report


def _situation() -> str:
    parts = []
    for command in (
        ("get", "pods,services,fsm", "-o", "wide"),
        ("get", "fsm", "-o", "yaml"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/component=backend", "--tail=60", "--prefix"),
        ("logs", "-l", "app.kubernetes.io/component=operator", "--tail=60", "--prefix"),
    ):
        try:
            said = Kube(kubeconfig(), "flexserv-e2e").kubectl(*command)[-6000:]
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
