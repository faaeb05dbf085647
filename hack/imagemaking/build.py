"""Build the images of this tree with whatever docker engine answers; what is there already is left alone."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lab import docker_engine
from lab.attempts import retry
from lab.commands import environment, succeeds, tail
from lab.errors import CommandError, TookTooLong
from lab.places import HACK
from lab.progress import say, stage

from imagemaking import base, pip_settings, torch_wheel
from imagemaking.inputs import IMAGES, Image, copy_sources, tag

ROOT = HACK.parent
# Names a base image that the engine has or can pull, for those who have a registry; else we make our own.
BASE_VARIABLE = "FLEXSERV_BASE_IMAGE"
_SCRATCH = ROOT / ".build"
# The Python of the base image; torch's wheel must fit it.
_PYTHON = "cp311"
_BUILD_SECONDS = 2400.0
_SECONDS = 120.0


def names(root: Path = ROOT) -> dict[Image, str]:
    """The full name of each image that the sources below `root` and this environment lead to."""
    choices = {image: [os.environ.get(BASE_VARIABLE) or base.name()] for image in IMAGES}
    for image in filter(_has_torch, IMAGES):
        choices[image] += _torch_arguments().values()
    return {image: f"{image.repository}:{tag(root, image, choices[image])}" for image in IMAGES}


def ensure_all() -> dict[Image, str]:
    """Build what is missing and return the names of all images."""
    access = docker_engine.environment()
    with _snapshot() as context:
        wanted = names(context)
        missing = {image: name for image, name in wanted.items() if not _exists(name, access)}
        if missing:
            settings = pip_settings.read()
            _add_wheel(context)
            pip_settings.place_certificates(settings, context / ".build" / "certificates")
            arguments = {
                "BASE_IMAGE": os.environ.get(BASE_VARIABLE) or base.ensure(),
                "VERSION": version(context),
                **_torch_arguments(),
            }
            arguments |= pip_settings.build_arguments(settings, os.environ)
            for image, name in missing.items():
                retry(partial(_build, image, name, context, arguments, access))
    for name in wanted.values():
        if name not in missing.values():
            say(f"{name} is there already")
    return wanted


def has_cuda(image: Image) -> bool:
    """Whether the image is built with PyPI's torch for CUDA: the backend is, unless a +cpu wheel is given."""
    return _has_torch(image) and torch_wheel.find(_PYTHON) is None


def _has_torch(image: Image) -> bool:
    return image.target == "backend"


def _torch_arguments() -> dict[str, str]:
    if torch_wheel.find(_PYTHON) is None:
        return {}
    return {"TORCH_SPEC": f"torch=={torch_wheel.pinned_version()}+cpu", "BACKEND_EXTRAS": "backend"}


@contextmanager
def _snapshot() -> Iterator[Path]:
    _SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_SCRATCH, prefix="context-") as folder:
        copy_sources(ROOT, Path(folder))
        yield Path(folder)


def _add_wheel(context: Path) -> None:
    if wheel := torch_wheel.find(_PYTHON):
        folder = context / ".build" / "wheels"
        folder.mkdir(parents=True)
        shutil.copyfile(wheel, folder / wheel.name)


def _exists(name: str, access: Mapping[str, str]) -> bool:
    return succeeds([docker_engine.client(), "image", "inspect", name], timeout=_SECONDS, env=access)


def _build(
    image: Image, name: str, context: Path, arguments: Mapping[str, str], access: Mapping[str, str]
) -> None:
    # The private engine has no bridge, so the build shares the machine's network.
    command = [docker_engine.client(), "build", "--network", "host", "--target", image.target, "--tag", name]
    for key, value in arguments.items():
        command += ["--build-arg", f"{key}={value}"]
    log = _SCRATCH / f"{image.target}.log"
    with stage(f"building {name} (log: {log})"), log.open("w") as output:
        try:
            done = subprocess.run(
                [*command, str(context)],
                env=environment(access),
                stdout=output,
                stderr=output,
                timeout=_BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TookTooLong(f"no image after {_BUILD_SECONDS:.0f} s: see {log}") from error
    if done.returncode != 0:
        raise CommandError(
            f"the build of {name} failed; {log} ends with\n{tail(log.read_text(errors='replace'))}"
        )


def version(root: Path = ROOT) -> str:
    """The project's version in the sources below `root`."""
    lines = (root / "pyproject.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))
