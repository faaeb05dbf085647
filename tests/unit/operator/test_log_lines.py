"""The operator's log in both forms, as a process writes it."""

import json
import re
import subprocess
import sys
from pathlib import Path

OPERATOR = Path(__file__).parents[3] / "operator"
PROGRAM = """
import logging, sys, warnings
from flexserv_operator.log_lines import configure_logging, last_words
configure_logging("debug", sys.argv[1])
logging.getLogger("flexserv_operator.x").debug("pod %s: loading", "a\\nb")
logging.getLogger("httpx").info("GET with a token in it")
logging.getLogger("kopf._core").debug("theirs at debug")
logging.getLogger("kopf._core").info("theirs at info")
warnings.warn("careful", DeprecationWarning)
print("printed")
last_words("flexserv-operator: the end")
raise RuntimeError("at the top")
"""


def run(form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, form],
        env={"PYTHONPATH": str(OPERATOR)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    return (done.stdout + done.stderr).splitlines()


def test_whoever_writes_in_the_process_writes_json_lines() -> None:
    entries = [json.loads(line) for line in run("json")]
    assert [(entry["level"], entry["logger"], entry["message"].split(" (")[0]) for entry in entries] == [
        ("debug", "flexserv_operator.x", "pod a\nb: loading"),
        ("info", "kopf._core", "theirs at info"),
        ("warning", "py.warnings", "DeprecationWarning: careful"),
        ("warning", "printed", "printed"),
        ("critical", "flexserv_operator", "flexserv-operator: the end"),
        ("critical", "flexserv_operator", "nobody caught this"),
    ]
    keys = {"time", "level", "logger", "message"}
    assert all(set(entry) - {"exception"} == keys for entry in entries)
    assert entries[-1]["exception"].endswith("RuntimeError: at the top")


def test_in_text_an_event_is_a_line_and_a_traceback_follows_indented() -> None:
    lines = run("text")
    stamped = [
        line for line in lines if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ \S+: ", line)
    ]
    assert len(stamped) == 4 and stamped[0].endswith(r"DEBUG flexserv_operator.x: pod a\nb: loading")
    rest = [line for line in lines if line not in stamped]
    assert {line for line in rest if not line.startswith("    ")} == {"printed", "flexserv-operator: the end"}
