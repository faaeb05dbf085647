"""Bring container images from docker, or from an archive, into the node's containerd."""

import json
import subprocess
from pathlib import Path

from lab import docker_engine
from lab.commands import environment, run, tail
from lab.errors import CommandError, LabError
from lab.places import debian

_SECONDS = 900.0


class ImageStore:
    """The node's images, reached over containerd's socket."""

    def __init__(self, socket: Path) -> None:
        self._ctr = [str(debian() / "usr/bin/ctr"), "--address", str(socket), "--namespace", "k8s.io"]

    def load(self, image: str) -> bool:
        """Import one image by name or archive file; False if the very same is there already."""
        if Path(image).is_file():
            run([*self._ctr, "images", "import", "--digests", image], timeout=_SECONDS)
            return True
        docker = docker_engine.client()
        access = docker_engine.environment()
        inspect = [docker, "image", "inspect", "--format", "{{.Id}}", image]
        try:
            wanted = run(inspect, timeout=60, env=access).strip()
        except CommandError as error:
            raise LabError(
                f"{image} is neither an image that docker knows nor an archive file: build it first"
            ) from error
        if wanted == self._config_of(full_name(image)):
            return False
        self._pipe([docker, "save", image], access)
        return True

    def _config_of(self, name: str) -> str | None:
        """The id of the image of this name, if it is here; docker takes the configuration's digest for it."""
        listed = run([*self._ctr, "images", "list", f"name=={name}"], timeout=60).splitlines()[1:]
        if not listed:
            return None
        manifest = json.loads(run([*self._ctr, "content", "get", listed[0].split()[2]], timeout=60))
        found = manifest.get("config", {}).get("digest")
        return found if isinstance(found, str) else None

    def _pipe(self, save: list[str], access: dict[str, str]) -> None:
        with subprocess.Popen(
            save, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(access)
        ) as source:
            try:
                sink = subprocess.run(
                    [*self._ctr, "images", "import", "-"],
                    stdin=source.stdout,
                    capture_output=True,
                    timeout=_SECONDS,
                )
            except subprocess.TimeoutExpired as error:
                source.kill()
                raise CommandError(f"importing the image took longer than {_SECONDS:.0f} s") from error
            assert source.stdout is not None and source.stderr is not None
            source.stdout.close()
            complaint = source.stderr.read().decode(errors="replace")
        if source.returncode != 0 or sink.returncode != 0:
            raise CommandError(
                f"{' '.join(save)} | ctr images import failed\n{tail(complaint + sink.stderr.decode())}"
            )


def full_name(image: str) -> str:
    """The name under which containerd keeps what docker calls `image`."""
    first, slash, _ = image.partition("/")
    registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    name = image if registry else f"docker.io/{image}" if slash else f"docker.io/library/{image}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
