"""The real backend from this tree as a process, and the few calls that the checks make."""

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.errors import CommandError
from lab.places import HACK

PROGRAM = HACK.parent / "backend" / "hf_transformers_backend" / "backend_server.py"
START_SECONDS, STOP_SECONDS, CALL_SECONDS = 90.0, 30.0, 90.0
_LISTENING = re.compile(r"listening on (http://[^\s\"]+)")


class Answer:
    """Status and JSON body of an answer, whatever the status."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body = body

    @property
    def code(self) -> str | None:
        """The error's code, None where there is no error."""
        code: str | None = self.body.get("error", {}).get("code")
        return code

    @property
    def tokens(self) -> int:
        """How many were generated."""
        return int(self.body["usage"]["completion_tokens"])

    def __str__(self) -> str:
        return f"{self.status} {json.dumps(self.body.get('error') or self.body)[:200]}"


class Backend:
    """Starts in `with`, ends with it. `log` may be read at any time."""

    def __init__(self, python: Path, *flags: str) -> None:
        self._command = [str(python), str(PROGRAM), "--port", "0", *flags]

    def __enter__(self) -> "Backend":
        self._output = tempfile.TemporaryFile(mode="w+b")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEXSERV_")}
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=subprocess.STDOUT, env={**kept, "HF_HUB_OFFLINE": "1"}
        )
        deadline = time.monotonic() + START_SECONDS
        while (found := _LISTENING.search(self.log())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end()
                raise CommandError(f"the backend did not start; its log ends with\n{self.log()[-2000:]}")
            time.sleep(0.2)
        self.address = found[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._output.close()

    def get(self, path: str) -> Answer:
        """GET."""
        return self._call(urllib.request.Request(self.address + path))

    def post(self, path: str, **body: Any) -> Answer:
        """POST of a JSON object."""
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return self._call(urllib.request.Request(self.address + path, data=data, headers=headers))

    def load(self, model: Path, **settings: Any) -> Answer:
        """Load and wait."""
        return self.post("/v1/flexserv/models/load", model_id=str(model), wait=CALL_SECONDS - 5, **settings)

    def chat(self, model: Path, tokens: int) -> Answer:
        """At most so many tokens, greedily."""
        message = {"role": "user", "content": "hello world"}
        body = {"model": str(model), "messages": [message], "temperature": 0, "max_tokens": tokens}
        return self.post("/v1/chat/completions", **body)

    def inventory(self) -> dict[str, Any]:
        """What is resident."""
        return self.get("/v1/flexserv/models/loaded").body

    def log(self) -> str:
        """All that the backend has said."""
        return os.pread(self._output.fileno(), 10_000_000, 0).decode(errors="replace")

    def _call(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=CALL_SECONDS) as reply:
                return Answer(reply.status, json.loads(reply.read()))
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads(error.read()))

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
