"""The CRDs of others that the chart is checked against, taken from the Go modules that carry them."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from lab import golang
from lab.attempts import retry
from lab.commands import run
from lab.debian import link
from lab.errors import CommandError, MissingError
from lab.places import HACK, cache
from lab.progress import stage

MODULE = HACK / "go" / "crds"
FILES = {
    "github.com/prometheus-operator/prometheus-operator": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "github.com/kedacore/keda/v2": ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    "sigs.k8s.io/gateway-api": ("config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",),
}
"""The files to take from each module that hack/go/crds/go.mod requires."""
_SECONDS = 300.0


def folder() -> Path:
    """Where the CRDs lie, one YAML file each."""
    return cache() / "crds"


def key() -> str:
    """Sixteen characters that change with the versions and with the list of files."""
    digest = hashlib.sha256(repr(sorted(FILES.items())).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return digest.hexdigest()[:16]


def provide() -> None:
    """Download what is not there yet; the checksums in go.sum must hold."""
    target = cache() / "builds" / f"crds-{key()}"
    if not target.exists():
        with stage("taking the CRDs of the Prometheus operator, KEDA and the Gateway API from their modules"):
            _fetch(target)
    link(folder(), target)


def _fetch(target: Path) -> None:
    try:
        download: list[str | Path] = [golang.provide(), "mod", "download", "-json"]
        settings = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
        listing = retry(lambda: run(download, timeout=_SECONDS, cwd=MODULE, env=settings))
    except CommandError as error:
        raise MissingError(f"the CRDs need a Go module proxy that can be reached\n{error}") from error
    folders = _folders(listing)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".crds-") as work:
        whole = Path(work, "crds")
        whole.mkdir()
        for module, files in FILES.items():
            for file in files:
                shutil.copyfile(folders[module] / file, whole / Path(file).name)
        whole.rename(target)


def _folders(listing: str) -> dict[str, Path]:
    """The folder of each module, out of the JSON objects that `go mod download` prints in a row."""
    decoder, found, rest = json.JSONDecoder(), {}, listing.strip()
    while rest:
        entry, end = decoder.raw_decode(rest)
        found[entry["Path"]] = Path(entry["Dir"])
        rest = rest[end:].lstrip()
    return found
