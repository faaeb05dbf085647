"""A real API server, started once for the tests that need one."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.control_plane import ApiRejected, ControlPlane, control_plane
from tests.support.eventually import eventually

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flexservmodels.flexserv.io"
numbers = count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes without nodes: objects are admitted and stored, and nothing runs."""
    with control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A new namespace that enforces the `restricted` Pod Security Standard."""
    name = f"chart-{next(numbers)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    return name


@pytest.fixture
def no_crd(plane: ControlPlane) -> Iterator[None]:
    """The cluster without the CRD, before and after."""
    remove_crd(plane)
    yield
    remove_crd(plane)


def remove_crd(plane: ControlPlane) -> None:
    def gone() -> bool:
        try:
            plane.call("DELETE", CRD)
        except ApiRejected as refused:
            return refused.status == 404
        return False

    eventually(gone, timeout=20)
