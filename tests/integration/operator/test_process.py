"""The operator as a process: its start, its end, its ports and its size."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.control_plane import control_plane
from tests.support.operator_world import OPERATOR_TOKEN, OPERATOR_USER, Operator, World

MAX_MEMORY_MIB = 100


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_quickly_and_cleanly_when_told_also_while_a_pod_hangs(world: World, sent: signal.Signals):
    backend = world.add_pod("pod-a", "127.0.0.2", hang=True)
    operator = world.start_operator()
    world.soon(lambda: backend.calls, timeout=20)
    begin = time.monotonic()
    assert operator.stop(sent) == 0
    assert time.monotonic() - begin < 15
    log = operator.log.read_text()
    assert "Traceback" not in log and "Unclosed" not in log and "was never retrieved" not in log


def test_health_metrics_and_memory(world: World):
    world.add_pod("pod-a", "127.0.0.2")
    operator = world.start_operator()
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded", timeout=20)
    assert operator.get(operator.health_port, "/healthz").status_code == 200
    assert operator.metric('flexserv_operator_models{phase="Loaded"}') == 1
    assert operator.metric('flexserv_operator_loads_total{outcome="submitted"}') == 1
    assert operator.metric('flexserv_operator_poll_errors_total{reason="BackendUnreachable"}') == 0
    assert operator.metric("flexserv_operator_last_cycle_timestamp_seconds") > time.time() - 30
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    resident_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident_kib / 1024 < MAX_MEMORY_MIB


def test_it_exits_with_a_clear_line_until_its_crd_is_served(tmp_path: Path):
    with control_plane(tmp_path, users={OPERATOR_TOKEN: OPERATOR_USER}) as plane:
        operator = Operator(plane.kubeconfig(), "default", tmp_path / "operator.log", {})
        assert operator.process.wait(60) == 3
    assert operator.log.read_text().startswith(
        "flexserv-operator: the API server does not serve flexservmodels"
    )


def test_every_line_of_its_log_is_json_where_that_is_asked_for(world: World):
    world.add_pod("pod-a", "127.0.0.2")
    operator = world.start_operator(log_format="json", log_level="debug")
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded", timeout=20)
    assert operator.stop() == 0
    entries = [json.loads(line) for line in operator.log.read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(entry) for entry in entries)
    assert any(entry["message"] == "pod pod-a: loading org/chat" for entry in entries)
    assert OPERATOR_TOKEN not in operator.log.read_text()


def test_it_exits_with_a_clear_line_without_an_api_server(world: World, tmp_path: Path):
    kubeconfig = tmp_path / "nowhere"
    content = world.plane.kubeconfig(OPERATOR_TOKEN).read_text()
    kubeconfig.write_text(content.replace(world.plane.url, "https://127.0.0.1:1"))
    operator = Operator(kubeconfig, "default", tmp_path / "lonely.log", {})
    assert operator.process.wait(60) == 3
    assert operator.log.read_text().startswith("flexserv-operator: cannot log in to the API server")


def test_it_exits_with_a_clear_line_without_rights(world: World, tmp_path: Path):
    operator = Operator(world.plane.kubeconfig(OPERATOR_TOKEN), "kube-system", tmp_path / "lost.log", {})
    assert operator.process.wait(60) == 3
    assert "cannot list flexservmodels in namespace kube-system: 403" in operator.log.read_text()


def test_it_needs_neither_torch_nor_transformers_nor_the_backend():
    code = (
        "import sys, flexserv_operator.__main__\n"
        "heavy = {'torch', 'transformers', 'hf_transformers_backend'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    operator = Path(__file__).parents[3] / "operator"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(operator)}, check=True, timeout=60)
