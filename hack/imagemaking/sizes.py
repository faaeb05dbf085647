"""How large an image is, and how large it may be."""

from pathlib import Path

from lab import docker_engine
from lab.commands import run

from imagemaking import build
from imagemaking.inputs import Image

# What we may add to torch and its libraries: the base, Python, transformers and the rest, and all byte code.
BESIDE_TORCH = 300_000_000
_TORCH_LIBRARIES = Path(__file__).with_name("torch_libraries.py")
_SECONDS = 120.0


def size(name: str) -> int:
    """Uncompressed size of the image in bytes. Raises CommandError if it is not there."""
    inspect = [docker_engine.client(), "image", "inspect", "--format", "{{.Size}}", name]
    return int(run(inspect, timeout=_SECONDS, env=docker_engine.environment()))


def limit(image: Image, name: str) -> int:
    """The largest size in bytes that the image may have; with CUDA it follows from the torch inside."""
    return torch_and_its_libraries(name) + BESIDE_TORCH if build.has_cuda(image) else image.size_limit


def torch_and_its_libraries(name: str) -> int:
    """Bytes that `pip install torch` alone takes for the torch in this image, byte code aside."""
    inside = ["run", "--rm", "--interactive", "--network", "none", "--read-only", "--entrypoint", "python"]
    command = [docker_engine.client(), *inside, name, "-"]
    program = _TORCH_LIBRARIES.read_text()
    return int(run(command, timeout=_SECONDS, env=docker_engine.environment(), stdin=program))
