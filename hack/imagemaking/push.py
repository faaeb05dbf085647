"""Images on their way into a registry: named for it, pushed, and told as values of the chart."""

import re
from collections.abc import Mapping, Sequence

from lab import docker_engine
from lab.commands import run
from lab.errors import LabError
from lab.progress import stage

from imagemaking.inputs import Image

_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?(/[a-z0-9][a-z0-9._-]*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_SECONDS = 60.0
_PUSH_SECONDS = 3600.0


def remote_names(images: Sequence[Image], registry: str, tag: str) -> dict[Image, str]:
    """The images in `registry` (host[:port][/path]). Raises LabError for what can be none."""
    if not _REGISTRY.fullmatch(registry):
        raise LabError(
            f"{registry!r} is no registry: write host[:port][/path], as in REGISTRY=registry.example.com/team"
        )
    if not _TAG.fullmatch(tag):
        raise LabError(f"{tag!r} is no tag: letters, digits, dots, dashes and underscores only")
    return {image: f"{registry}/{image.repository}:{tag}" for image in images}


def push(images: Mapping[Image, str], registry: str, tag: str) -> dict[Image, str]:
    """Push the images under their names for the registry, and return those names."""
    names = remote_names(list(images), registry, tag)
    docker, access = docker_engine.client(), docker_engine.environment()
    for image, local in images.items():
        run([docker, "tag", local, names[image]], timeout=_SECONDS, env=access)
        with stage(f"pushing {names[image]}"):
            run([docker, "push", names[image]], timeout=_PUSH_SECONDS, env=access)
    return names


def chart_values(names: Mapping[Image, str]) -> str:
    """The arguments of helm that make the chart use these images."""
    values = []
    for image, name in names.items():
        repository, _, tag = name.rpartition(":")
        values.append(f"--set {image.target}.image.repository={repository},{image.target}.image.tag={tag}")
    return " \\\n  ".join(values)
