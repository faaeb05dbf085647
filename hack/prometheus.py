"""A real Prometheus on a free loopback port, scraping the given addresses every second while a block runs."""

import contextlib
import json
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from kube import CACHE
from lab.ports import free_port


class Prometheus:
    """The query API of one running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> dict[str, float]:
        """An instant query: label set (as JSON text, without the name) to value."""
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as reply:
            result = json.load(reply)["data"]["result"]
        return {
            json.dumps({k: v for k, v in row["metric"].items() if k != "__name__"}, sort_keys=True): float(
                row["value"][1]
            )
            for row in result
        }


@contextlib.contextmanager
def scraping(jobs: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run Prometheus with one job per `name: host:port` until the block ends."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="flexserv-prometheus-") as folder:
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": [address]}]}
                for name, address in jobs.items()
            ],
        }
        Path(folder, "prometheus.yml").write_text(json.dumps(config))
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(
                [
                    str(CACHE / "bin" / "prometheus"),
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _until_ready(url, process, Path(folder, "log"))
            yield Prometheus(url)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _until_ready(url: str, process: subprocess.Popen[bytes], log: Path, timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Prometheus did not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.1)
