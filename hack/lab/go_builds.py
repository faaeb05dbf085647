"""Build the Go programs that cluster and tests need, each once for its sources and flags."""

import hashlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import golang
from lab.attempts import retry
from lab.commands import run
from lab.debian import link
from lab.errors import CommandError, MissingError
from lab.places import HACK, binaries, cache
from lab.progress import stage

_BUILD_SECONDS = 1800.0
_STATIC = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}


@dataclass(frozen=True)
class Program:
    """One command: its package, and the version variables that are set when it is linked."""

    package: str
    variables: str = ""

    @property
    def ldflags(self) -> str:
        """Without symbol tables, with the version."""
        return f"-s -w {self.variables}".strip()


@dataclass(frozen=True)
class Module:
    """One go.mod of ours (in hack/go/) with the programs that are built from it."""

    name: str
    programs: dict[str, Program]

    @property
    def folder(self) -> Path:
        """Where its go.mod and go.sum lie."""
        return HACK / "go" / self.name


def _variables(package: str, **values: str) -> str:
    return " ".join(f"-X {package}.{name}={value}" for name, value in values.items())


def declared_version(module: str, requirement: str) -> str:
    """The version of a requirement as the module's go.mod declares it."""
    text = (HACK / "go" / module / "go.mod").read_text()
    found = re.search(rf"^\s+{re.escape(requirement)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"hack/go/{module}/go.mod does not require {requirement}")
    return found[1]


KUBERNETES_VERSION = declared_version("kubernetes", "k8s.io/kubernetes")
_HELM_VERSION = declared_version("charts", "helm.sh/helm/v3")
_HELM_DOCS_VERSION = declared_version("charts", "github.com/norwoodj/helm-docs").removeprefix("v")
_KUBECONFORM_VERSION = declared_version("charts", "github.com/yannh/kubeconform")
_KUBE_SCORE_VERSION = declared_version("kube-score", "github.com/zegl/kube-score")
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
_KUBERNETES_VARIABLES = _variables(
    "k8s.io/component-base/version",
    gitVersion=KUBERNETES_VERSION,
    gitMajor=_MAJOR,
    gitMinor=_MINOR,
    gitTreeState="clean",
)
# What `helm template`, `helm lint` and helm-unittest take for the version where there is no cluster.
_ASSUMED_VERSION = " ".join(
    _variables(f"helm.sh/helm/v3/pkg/{package}", k8sVersionMajor=_MAJOR, k8sVersionMinor=_MINOR)
    for package in ("chartutil", "lint/rules")
)
_HELM_VARIABLES = _variables("helm.sh/helm/v3/internal/version", version=_HELM_VERSION, gitTreeState="clean")

KUBERNETES = Module(
    "kubernetes",
    {
        name: Program(f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_VARIABLES)
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubectl",
            "kubelet",
        )
    },
)
CHARTS = Module(
    "charts",
    {
        "helm": Program("helm.sh/helm/v3/cmd/helm", f"{_HELM_VARIABLES} {_ASSUMED_VERSION}"),
        "helm-docs": Program(
            "github.com/norwoodj/helm-docs/cmd/helm-docs", _variables("main", version=_HELM_DOCS_VERSION)
        ),
        "kubeconform": Program(
            "github.com/yannh/kubeconform/cmd/kubeconform", _variables("main", version=_KUBECONFORM_VERSION)
        ),
    },
)
HELM_UNITTEST = Module(
    "helm-unittest",
    {"helm-unittest": Program("github.com/helm-unittest/helm-unittest/cmd/helm-unittest", _ASSUMED_VERSION)},
)
KUBE_SCORE = Module(
    "kube-score",
    {
        "kube-score": Program(
            "github.com/zegl/kube-score/cmd/kube-score", _variables("main", version=_KUBE_SCORE_VERSION)
        )
    },
)
PAUSE = Module("pause", {"pause": Program(".")})
"""What holds a pod's namespaces; goes into an image, not on PATH."""


def key(module: Module) -> str:
    """A hash of all that decides what a build of this module gives."""
    digest = hashlib.sha256(repr(sorted(module.programs.items())).encode())
    for source in sorted([*module.folder.glob("go.*"), *module.folder.glob("*.go")]):
        digest.update(f"\0{source.name}\0".encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def built(module: Module) -> Path:
    """The folder in which this module's programs lie, or will lie."""
    return cache() / "builds" / f"{module.name}-{key(module)}"


def provide(modules: Sequence[Module]) -> None:
    """Build what is not there yet, and point the links in the folder of programs to it."""
    for module in modules:
        missing = [name for name in module.programs if not (built(module) / name).exists()]
        if missing:
            go = golang.provide()
            for name in missing:
                with stage(f"building {name}"):
                    _build(go, module, name)
        if module is not PAUSE:
            binaries().mkdir(parents=True, exist_ok=True)
            for name in module.programs:
                link(binaries() / name, built(module) / name)


def _build(go: Path, module: Module, name: str) -> None:
    """Build in a temporary folder and move the result: a program that is there is whole."""
    target = built(module) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as work:
        output = Path(work, name)
        program = module.programs[name]
        flags = ["-trimpath", "-ldflags", program.ldflags, "-o", str(output)]
        try:
            build: list[str | Path] = [go, "build", *flags, program.package]
            retry(lambda: run(build, timeout=_BUILD_SECONDS, cwd=module.folder, env=_STATIC))
        except CommandError as error:
            raise MissingError(
                f"{name} could not be built: the first time it needs a Go module proxy that can be reached, "
                f"4 GB of free memory and 6 GB of free disk\n{error}"
            ) from error
        output.replace(target)
