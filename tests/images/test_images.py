"""What is in the images, what is not, and that any user can start them."""

import json
import re
from pathlib import Path

import pytest
from imagemaking import build, leftovers, sizes

from tests.images.conftest import Built
from tests.support.eventually import eventually

ANYBODY = ("--user", "54321:0", "--env", "HOME=", "--env", "USER=")
SURVEY = """
import importlib.metadata, json, os, pathlib, re, shutil, sys
lib = pathlib.Path(sys.prefix, "lib")
modules = [*lib.rglob("*.py"), *pathlib.Path("/opt/code").rglob("*.py")]
tag = sys.implementation.cache_tag
dangling = re.compile(rb"^\\s*(from|import)\\s[^#\\n]*\\bmodular_", re.M)
def compiled(file):
    return (file.parent / "__pycache__" / f"{file.stem}.{tag}.pyc").exists()
def parses(file):
    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError):
        return False
    return True
print(json.dumps({
    "programs": [name for name in ("gcc", "cc", "g++", "clang", "make", "pip", "pip3") if shutil.which(name)],
    "modules": len(modules),
    "uncompiled": [str(file) for file in modules if not compiled(file) and parses(file)][:20],
    "tests": [str(folder) for folder in lib.rglob("tests") if folder.is_dir()][:20],
    "archives": [str(file) for file in lib.rglob("*.a")][:20],
    "headers": [str(folder) for folder in lib.rglob("torch/include")],
    "imports of what went": [str(file) for file in lib.rglob("transformers/**/*.py")
                             if dangling.search(file.read_bytes())],
    "caches": [str(file) for folder in ("/var/cache/apt", "/var/lib/apt/lists", "/root/.cache")
               if os.access(folder, os.R_OK) for file in pathlib.Path(folder).rglob("*") if file.is_file()],
    "installed": sorted(f"{d.name}=={d.version}" for d in importlib.metadata.distributions()),
    "listed": open("/opt/flexserv/packages.txt").read().split(),
}))
"""


@pytest.fixture(scope="session")
def surveys(images: dict[str, Built]) -> dict[str, dict[str, list[str]]]:
    """What lies in each image, told by its own Python."""
    return {target: json.loads(built.python(SURVEY)) for target, built in images.items()}


def test_an_image_is_no_larger_than_it_may_be(built: Built) -> None:
    assert sizes.size(built.name) <= sizes.limit(built.image, built.name)


def test_an_image_says_what_it_is(built: Built) -> None:
    labels = built.config()["Labels"]

    said = {key.removeprefix("org.opencontainers.image."): value for key, value in labels.items()}
    assert said["title"] == f"flexserv-{built.image.target}"
    assert said["version"] == build.version()
    assert said["licenses"] == "Apache-2.0"
    assert said["description"] and said["vendor"] and said["base.name"]


def test_an_image_holds_the_list_of_its_packages(
    built: Built, surveys: dict[str, dict[str, list[str]]]
) -> None:
    survey = surveys[built.image.target]

    ours = f"flexserv=={build.version()}"
    assert len(survey["listed"]) > 20
    assert normalized(survey["listed"]) == normalized(survey["installed"]) - {ours}


def normalized(packages: list[str]) -> set[str]:
    """One spelling for what pip and the packages themselves call them."""
    return {re.sub(r"[-_.]+(?=.*==)", "-", package).lower() for package in packages}


def test_an_image_has_no_compiler_no_installer_and_nothing_left_over(
    built: Built, surveys: dict[str, dict[str, list[str]]]
) -> None:
    survey = surveys[built.image.target]

    for kind in ("programs", "tests", "archives", "headers", "imports of what went", "caches"):
        assert survey[kind] == [], kind


def test_an_image_has_nothing_that_its_build_was_to_delete(built: Built) -> None:
    rules = Path(leftovers.__file__).read_text()
    ask = "print(*leftovers(*Path(sys.prefix).glob('lib/python3*/site-packages')), sep='\\n')"

    assert built.python(f"__name__ = 'leftovers'\n{rules}\n{ask}\n").split() == []


def test_all_byte_code_is_there_because_a_read_only_root_never_gets_it(
    built: Built, surveys: dict[str, dict[str, list[str]]]
) -> None:
    survey = surveys[built.image.target]

    assert survey["uncompiled"] == []
    assert int(str(survey["modules"])) > 500


def test_the_operator_carries_no_models_and_a_cpu_backend_no_torchaudio(
    surveys: dict[str, dict[str, list[str]]], backend: Built
) -> None:
    names = {
        target: {one.partition("==")[0] for one in survey["installed"]} for target, survey in surveys.items()
    }
    assert not {"torch", "transformers"} & names["operator"]
    assert {"torch", "transformers"} <= names["backend"]
    if not build.has_cuda(backend.image):
        assert "torchaudio" not in names["backend"]


def test_no_shell_is_between_the_engine_and_the_program(built: Built) -> None:
    config = built.config()

    assert config["Entrypoint"][0] == "/opt/flexserv/bin/python"
    assert config["Cmd"] is None
    assert config["User"].split(":") == ["1000", "0"]


def test_any_user_of_group_0_without_a_home_can_start_it(built: Built) -> None:
    assert "--log-level" in built.run("--help", options=ANYBODY)


@pytest.mark.timeout(400)
def test_any_user_without_a_home_gets_a_backend_that_serves(backend: Built) -> None:
    options = (*ANYBODY, "--network", "none", "--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp")
    started = backend.docker("run", "--detach", *options, backend.name, "--device", "cpu")
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8001/v1/flexserv/health').status)"
    try:
        eventually(
            lambda: backend.docker("exec", container, "python", "-c", ask).stdout.strip() == "200",
            timeout=200,
        )
        backend.docker("stop", "--time", "60", container)
        state = backend.docker("inspect", "--format", "{{.State.ExitCode}}", container)
        assert state.stdout.strip() == "0", backend.docker("logs", container).stderr
    finally:
        backend.docker("rm", "--force", container)
