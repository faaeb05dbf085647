"""A docker engine for building images: the machine's own if one answers, else a private one."""

import os
import shutil
from pathlib import Path

from lab import cgroups
from lab.commands import find, succeeds
from lab.debian import provide
from lab.enclosure import Enclosure, require_root
from lab.errors import MissingError
from lab.places import cache, debian, mark, state
from lab.plan import Component, Plan, Probe
from lab.progress import say, stage

_ANSWER_SECONDS = 15.0
_SOCKET_PATH_LIMIT = 107


def _enclosure() -> Enclosure:
    return Enclosure(state() / "docker")


def socket_path() -> Path:
    """The private engine's socket."""
    return state() / "docker" / "docker.sock"


def _cgroup() -> str:
    return f"flexserv-docker-{mark()}"


def client() -> str:
    """The docker client: the machine's own, else the extracted one."""
    own = shutil.which("docker")
    return own or find("docker", "run: hack/tools debian")


def client_folder() -> Path:
    """Where the extracted docker client lies, for machines that have none."""
    return debian() / "usr/bin"


def private_url() -> str:
    """What DOCKER_HOST is for the private engine."""
    return f"unix://{socket_path()}"


def _answers(host: str | None) -> bool:
    where = ["--host", host] if host else []
    return succeeds([client(), *where, "version", "--format", "{{.Server.Version}}"], timeout=_ANSWER_SECONDS)


def environment() -> dict[str, str]:
    """The variables with which `docker` reaches an engine; empty when it does so by itself.

    The private engine has the legacy builder only. Raises MissingError when no engine answers.
    """
    if _enclosure().init is not None and _answers(private_url()):
        return {"DOCKER_HOST": private_url(), "DOCKER_BUILDKIT": "0"}
    if os.environ.get("DOCKER_HOST") != private_url() and _answers(None):
        return {}
    raise MissingError("no docker engine answers: start the private one with: hack/docker up")


def up() -> None:
    """Make an engine answer: nothing to do if one does, else start the private one, afresh if half dead."""
    enclosure = _enclosure()
    if shutil.which("docker") and os.environ.get("DOCKER_HOST") != private_url() and _answers(None):
        say("a docker engine answers already: nothing to start")
        return
    require_root()
    with enclosure.locked():
        if enclosure.init is not None and enclosure.report.healthy and _answers(private_url()):
            say("the private docker engine runs already")
            return
        provide()
        _stop(enclosure)
        with stage("starting the private docker engine"):
            enclosure.folder.mkdir(parents=True, exist_ok=True)
            enclosure.start(_plan(enclosure))
            enclosure.await_running(90.0, say)


def down(*, purge: bool) -> None:
    """End the private engine; its images stay in the cache unless `purge`."""
    enclosure = _enclosure()
    with enclosure.locked():
        _stop(enclosure)
        if purge:
            shutil.rmtree(_data(), ignore_errors=True)
    say("the private docker engine is down" + (", its images are deleted" if purge else ""))


def status() -> str:
    """One line for each part of the private engine."""
    enclosure = _enclosure()
    if enclosure.init is None:
        return "private docker engine: not running"
    parts = [f"  {name}: {one.state}" for name, one in enclosure.report.components.items()]
    return "\n".join([f"private docker engine: {enclosure.report.phase}, {private_url()}", *parts])


def _stop(enclosure: Enclosure) -> None:
    enclosure.stop(grace_seconds=25.0)
    cgroups.remove(_cgroup())
    if enclosure.folder.exists():
        enclosure.forget()


def _data() -> Path:
    """Where its images lie: in the cache, so that `down` keeps them, yet never shared by two engines."""
    return cache() / f"docker-{mark()}"


def _plan(enclosure: Enclosure) -> Plan:
    folder, data = enclosure.folder, _data()
    if len(str(socket_path())) > _SOCKET_PATH_LIMIT:
        raise MissingError(f"{socket_path()} is too long for a socket: choose a shorter FLEXSERV_STATE")
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    containerd_socket = folder / "containerd.sock"
    settings = folder / "containerd.toml"
    settings.write_text(
        f'version = 2\nroot = "{data}/containerd"\nstate = "{folder}/containerd"\n'
        f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{containerd_socket}"\n'
    )
    containerd = [str(debian() / "usr/bin/containerd"), "--config", str(settings)]
    dockerd = [
        str(debian() / "usr/sbin/dockerd"),
        f"--host={private_url()}",
        f"--containerd={containerd_socket}",
        f"--data-root={data}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/docker.pid",
        f"--config-file={folder}/daemon.json",
        f"--cgroup-parent=/{_cgroup()}",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--oom-score-adjust=0",
    ]
    (folder / "daemon.json").write_text("{}\n")
    return Plan(
        components=[
            Component("containerd", containerd, Probe(unix=str(containerd_socket))),
            Component("dockerd", dockerd, Probe(unix=str(socket_path()))),
        ],
        logs=str(enclosure.logs),
        report=str(enclosure.report_file),
        shielded=["/run", "/var"],
        kept=[str(state()), str(cache())],
    )
