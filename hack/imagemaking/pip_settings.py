"""How this machine's pip reaches its index, as arguments for a build: asked of pip, never written down."""

import ast
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.commands import run
from lab.places import HACK

_PASSED_ON = {
    "index-url": "PIP_INDEX_URL",
    "extra-index-url": "PIP_EXTRA_INDEX_URL",
    "trusted-host": "PIP_TRUSTED_HOST",
    "default-timeout": "PIP_DEFAULT_TIMEOUT",
    "timeout": "PIP_DEFAULT_TIMEOUT",
}
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_SECONDS = 60.0
CERTIFICATES = "ca.crt"


def read() -> dict[str, str]:
    """pip's settings on this machine by name; the environment's win over those in files."""
    own = HACK.parent / ".venv" / "bin" / "python"
    python = own if own.exists() else Path(sys.executable)
    return parse(run([python, "-m", "pip", "config", "list"], timeout=_SECONDS))


def parse(listing: str) -> dict[str, str]:
    """Read what `pip config list` prints: lines like global.index-url='...' and :env:.cert='...'."""
    found: dict[str, str] = {}
    for line in sorted(listing.splitlines(), key=lambda line: line.startswith(":env:")):
        key, separator, value = line.partition("=")
        if separator:
            found[key.rpartition(".")[2]] = str(ast.literal_eval(value))
    return found


def build_arguments(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The build arguments that let pip inside a build do as pip does here."""
    passed_on = {key: value for key, value in settings.items() if key in _PASSED_ON}
    arguments = {_PASSED_ON[key]: " ".join(value.split()) for key, value in passed_on.items()}
    if "cert" in settings:
        arguments["PIP_CERT"] = f"/build/{CERTIFICATES}"
    return arguments | {name: environment[name] for name in _PROXIES if environment.get(name)}


def place_certificates(settings: Mapping[str, str], folder: Path) -> None:
    """Put pip's certificate bundle, if it has one of its own, into a folder of the build's context."""
    shutil.rmtree(folder, ignore_errors=True)
    if "cert" in settings:
        folder.mkdir(parents=True)
        shutil.copyfile(settings["cert"], folder / CERTIFICATES)
