"""How a supervised set of programs stands: written by its supervisor, read by everyone else."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Phase = Literal["starting", "running", "failed", "stopping"]
State = Literal["waiting", "starting", "ready", "exited"]


@dataclass
class ComponentReport:
    """One program: its state, its process id inside the enclosure, its exit status once it ended."""

    state: State = "waiting"
    pid: int | None = None
    exit_status: int | None = None
    seconds_to_ready: float | None = None

    def begin(self, pid: int) -> None:
        """Note that it was started."""
        self.pid, self.state = pid, "starting"


@dataclass
class Report:
    """The whole set. `reason` explains a failure, `culprit` names the component whose log tells more."""

    phase: Phase = "starting"
    reason: str = ""
    culprit: str = ""
    components: dict[str, ComponentReport] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Everything was started, and nothing has ended since."""
        return self.phase == "running" and all(one.state == "ready" for one in self.components.values())

    @property
    def dead(self) -> list[str]:
        """The components that ended by themselves."""
        return [name for name, one in self.components.items() if one.state == "exited"]


def write(report: Report, path: Path) -> None:
    """Replace the file in one step: a reader never sees half a report."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(report), indent=1))
    fresh.replace(path)


def read(path: Path) -> Report:
    """The last report, or an empty one (`starting`) where none was written yet."""
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return Report()
    return Report(
        **{**raw, "components": {name: ComponentReport(**one) for name, one in raw["components"].items()}}
    )
