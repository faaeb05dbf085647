"""One API server for all tests of the operator, and a namespace of its own for each."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane, control_plane, free_port
from tests.support.fake_backend import fleet
from tests.support.operator_world import OPERATOR_TOKEN, OPERATOR_USER, World

CRD = Path(__file__).parents[3] / "charts" / "flexserv" / "files" / "flexservmodel-crd.yaml"
_numbers = count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """kube-apiserver and etcd with the CRD installed; RBAC is on."""
    folder = tmp_path_factory.mktemp("control-plane")
    with control_plane(folder, users={OPERATOR_TOKEN: OPERATOR_USER}) as plane:
        plane.install_crd(CRD)
        yield plane


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty namespace with the backend's Service. Operators that the test leaves running are stopped."""
    with fleet(free_port()) as backends:
        world = World(plane, f"test-{next(_numbers)}", backends, tmp_path)
        try:
            yield world
        finally:
            world.stop_operators()
            log = tmp_path / "operator.log"
            if log.exists():
                print(log.read_text()[-8000:])
