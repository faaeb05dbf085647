"""The images of this tree, which `hack/images` has built, and the docker engine that has them."""

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest
from imagemaking import build
from imagemaking.inputs import Image
from lab import docker_engine
from lab.commands import environment

SECONDS = 120


@dataclass(frozen=True)
class Built:
    """One image, and containers of it."""

    image: Image
    name: str

    def docker(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [docker_engine.client(), *arguments],
            env=environment(docker_engine.environment()),
            input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        """What the image says of itself."""
        answer = self.docker("image", "inspect", "--format", "{{json .Config}}", self.name)
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    def run(self, *command: str, options: tuple[str, ...] = ()) -> str:
        """What the image's own command prints, with a read-only root and no network."""
        return self._run(options, command, None)

    def python(self, program: str, options: tuple[str, ...] = ()) -> str:
        """What a Python program prints in the image."""
        return self._run((*options, "--interactive", "--entrypoint", "python"), ("-",), program)

    def _run(self, options: tuple[str, ...], command: tuple[str, ...], stdin: str | None) -> str:
        always = ("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL")
        answer = self.docker(*always, *options, self.name, *command, stdin=stdin)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test sees each image, unless it asks for one by name."""
    if "built" in metafunc.fixturenames:
        metafunc.parametrize("built", ["operator", "backend"], indirect=True)


@pytest.fixture(scope="session")
def images() -> dict[str, Built]:
    """Both images by target."""
    if os.geteuid() != 0 and not os.environ.get("DOCKER_HOST"):
        pytest.skip("the private docker engine needs root")
    docker_engine.up()
    found = {image.target: Built(image, name) for image, name in build.names().items()}
    for built in found.values():
        assert built.docker("image", "inspect", built.name).returncode == 0, "run `hack/images`"
    return found


@pytest.fixture
def built(request: pytest.FixtureRequest, images: dict[str, Built]) -> Built:
    return images[request.param]


@pytest.fixture
def backend(images: dict[str, Built]) -> Built:
    return images["backend"]
