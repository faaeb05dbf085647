"""Where a second node could disturb what lives here, we do not start one."""

import pytest
from lab.local.refusal import Neighbors, reason

NOBODY = Neighbors(kubelets=[], docker_engines=[], docker_packages=[])


def test_an_empty_machine_is_fine() -> None:
    assert reason(NOBODY) is None


@pytest.mark.parametrize(
    ("neighbors", "named"),
    [
        (Neighbors([17], [], []), "a kubelet runs on this machine (process 17)"),
        (Neighbors([], [23], []), "a docker engine runs on this machine (process 23)"),
        (
            Neighbors([], [], ["docker-ce", "containerd.io"]),
            "Docker CE is installed on this machine (docker-ce, containerd.io)",
        ),
        (Neighbors([17], [23], ["docker-ce"]), "a kubelet runs"),
    ],
    ids=["kubelet", "dockerd", "packages", "all"],
)
def test_a_refusal_names_the_neighbor_and_the_way_out(neighbors: Neighbors, named: str) -> None:
    text = reason(neighbors)
    assert text is not None and named in text and "use --provider kind" in text
