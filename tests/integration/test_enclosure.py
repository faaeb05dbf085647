"""Real programs in real namespaces (root needed): they start in order, are watched, and end together."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.enclosure import Enclosure
from lab.errors import CommandError
from lab.plan import Component, Plan, Probe
from lab.processes import running_program

from tests.support.eventually import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

WAIT_SECONDS = 20.0


@pytest.fixture
def enclosure(tmp_path: Path) -> Iterator[Enclosure]:
    one = Enclosure(tmp_path / "enclosure")
    with one.locked():
        yield one
        one.stop(grace_seconds=0)


def plan(enclosure: Enclosure, *components: Component, shielded: tuple[str, ...] = ()) -> Plan:
    return Plan(
        list(components),
        str(enclosure.logs),
        str(enclosure.report_file),
        shielded=list(shielded),
        stop_seconds=2.0,
    )


def named_sleep(tmp_path: Path, name: str) -> str:
    """A program of its own name, so that the test sees its own processes and no other."""
    program = tmp_path / name
    program.symlink_to("/usr/bin/sleep")
    return str(program)


def test_killing_the_supervisor_ends_every_process_in_the_enclosure(
    enclosure: Enclosure, tmp_path: Path
) -> None:
    name = f"fs-sleep-{os.getpid()}"
    background = f"setsid {named_sleep(tmp_path, name)} 600 & exec {tmp_path / name} 600"
    enclosure.start(plan(enclosure, Component("sleeper", ["/bin/sh", "-c", background])))
    enclosure.await_running(WAIT_SECONDS, lambda _: None)
    eventually(lambda: len(running_program(name)) == 2, WAIT_SECONDS)

    init = enclosure.init
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)

    # Process 1 outlives the others by the moment in which the kernel takes their namespace down.
    eventually(lambda: not running_program(name) and enclosure.init is None, WAIT_SECONDS)


def test_a_component_that_dies_is_reported_and_not_restarted(enclosure: Enclosure) -> None:
    enclosure.start(plan(enclosure, Component("short", ["/bin/sh", "-c", "sleep 0.5; exit 7"])))
    enclosure.await_running(WAIT_SECONDS, lambda _: None)
    eventually(lambda: enclosure.report.dead == ["short"], WAIT_SECONDS)
    assert enclosure.report.components["short"].exit_status == 7
    assert not enclosure.report.healthy
    assert enclosure.init is not None


def test_a_component_that_fails_to_start_is_named_with_the_end_of_its_log(enclosure: Enclosure) -> None:
    never = Probe(unix=str(enclosure.folder / "nobody.sock"))
    broken = Component("broken", ["/bin/sh", "-c", "echo the disk is full >&2; exit 3"], never)
    enclosure.start(plan(enclosure, broken, Component("later", ["/bin/sleep", "600"])))
    with pytest.raises(CommandError, match=r"broken ended with exit status 3(.|\n)*the disk is full"):
        enclosure.await_running(WAIT_SECONDS, lambda _: None)
    assert enclosure.report.components["later"].state == "waiting"


def test_what_is_written_into_a_shielded_folder_never_reaches_the_machine(enclosure: Enclosure) -> None:
    mark = Path(f"/run/flexserv-shield-{os.getpid()}")
    told = enclosure.folder / "told"
    script = f"echo inside > {mark} && cat {mark} > {told}; exec sleep 600"
    enclosure.start(
        plan(enclosure, Component("writer", ["/bin/sh", "-c", script]), shielded=("/run", "/var"))
    )
    eventually(lambda: told.exists() and told.read_text() == "inside\n", WAIT_SECONDS)
    assert not mark.exists()


def test_a_supervisor_whose_starter_dies_before_the_go_ends_by_itself(enclosure: Enclosure) -> None:
    def die(_: int) -> None:
        raise ConnectionError("cable cut")

    with pytest.raises(ConnectionError):
        enclosure.start(plan(enclosure, Component("sleeper", ["/bin/sleep", "600"])), connect=die)
    eventually(lambda: enclosure.init is None, WAIT_SECONDS)


def test_a_polite_stop_lets_components_end_their_work(enclosure: Enclosure) -> None:
    saved = enclosure.folder / "saved"
    script = f"trap 'echo saved > {saved}; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    enclosure.start(plan(enclosure, Component("saver", ["/bin/sh", "-c", script])))
    enclosure.await_running(WAIT_SECONDS, lambda _: None)
    eventually(lambda: "up" in enclosure.log_tail("saver"), WAIT_SECONDS)
    enclosure.stop(grace_seconds=10.0)
    assert saved.read_text() == "saved\n"
    assert enclosure.init is None
