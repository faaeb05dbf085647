"""What decides whether a Go program is built again."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab import go_builds, golang
from lab.go_builds import CHARTS, HELM_UNITTEST, KUBE_SCORE, KUBERNETES, PAUSE, Module, Program, key


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    monkeypatch.setattr(go_builds, "HACK", tmp_path)
    sources = tmp_path / "go" / "thing"
    sources.mkdir(parents=True)
    (sources / "go.mod").write_text(
        "module thing\n\ngo 1.26.0\n\nrequire (\n\texample.org/dep v1.2.3 // indirect\n)\n"
    )
    (sources / "go.sum").write_text("one\n")
    return Module("thing", {"thing": Program("example.org/thing")})


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "main.go"])
def test_a_change_of_a_source_file_changes_the_key(module: Module, name: str) -> None:
    before = key(module)
    with (module.folder / name).open("a") as source:
        source.write("// changed\n")
    assert key(module) != before


def test_a_change_of_the_linked_version_changes_the_key(module: Module) -> None:
    changed = replace(module, programs={"thing": Program("example.org/thing", "-X main.version=v2")})
    assert key(changed) != key(module)


def test_the_key_stays_while_nothing_changes(module: Module) -> None:
    assert key(module) == key(replace(module))


def test_a_declared_version_is_read_from_go_mod(module: Module) -> None:
    assert go_builds.declared_version(module.name, "example.org/dep") == "v1.2.3"


def test_a_version_that_is_not_declared_is_an_error_that_names_the_file(module: Module) -> None:
    with pytest.raises(LookupError, match=r"hack/go/thing/go\.mod does not require example\.org/other"):
        go_builds.declared_version(module.name, "example.org/other")


@pytest.mark.parametrize(
    "module", [KUBERNETES, CHARTS, HELM_UNITTEST, KUBE_SCORE, PAUSE], ids=lambda one: one.name
)
def test_every_program_of_ours_is_a_tool_of_its_go_mod(module: Module) -> None:
    text = (module.folder / "go.mod").read_text()
    for program in module.programs.values():
        assert program.package == "." or program.package in text


def test_all_staging_modules_of_kubernetes_have_the_version_that_belongs_to_it() -> None:
    replaced = [
        line.split()
        for line in (KUBERNETES.folder / "go.mod").read_text().splitlines()
        if " => k8s.io/" in line
    ]
    assert len(replaced) > 25
    assert {words[-1] for words in replaced} == {go_builds.KUBERNETES_VERSION.replace("v1.", "v0.")}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go 1.26.0", (1, 26)),
        ("go version go1.9 linux/arm64", (1, 9)),
        ("go version devel +abc", None),
    ],
)
def test_a_version_of_go_is_understood(text: str, version: tuple[int, int] | None) -> None:
    assert golang.parse_version(text) == version


def test_a_go_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("old", "1.19.8"), ("new", "1.99.0")):
        go = tmp_path / name / "go"
        go.parent.mkdir()
        go.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
        go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/old:{tmp_path}/new:/usr/bin:/bin")
    assert golang.provide() == tmp_path / "new" / "go"
