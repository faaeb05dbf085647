"""One API server for all tests of the operator, and a namespace of its own for each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from lab.ports import free_port

from tests.support.control_plane import ControlPlane, control_plane
from tests.support.fake_fleet import fleet
from tests.support.operator_nursery import Nursery, nursery
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


@pytest.fixture(scope="session")
def operators() -> Iterator[Nursery]:
    """Where operators come from."""
    with nursery() as started:
        yield started


@pytest.fixture
def make_world(plane: ControlPlane, operators: Nursery, tmp_path: Path) -> Iterator[Callable[[], World]]:
    """Makes empty namespaces with the backend's Service. Operators that the test leaves running are
    stopped."""
    worlds: list[World] = []
    with ExitStack() as stack:

        def make() -> World:
            backends = stack.enter_context(fleet(free_port()))
            worlds.append(World(plane, f"test-{next(_numbers)}", backends, tmp_path, operators))
            return worlds[-1]

        yield make
        for world in worlds:
            world.stop_operators()
    for log in sorted(tmp_path.glob("operator*.log")):
        print(log.read_text()[-8000:])


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    """An empty namespace with the backend's Service."""
    return make_world()
