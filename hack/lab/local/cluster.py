"""Start, feed, show and end the one-node cluster."""

import json
import time
from pathlib import Path

from lab import cgroups, debian, go_builds
from lab.commands import find, run
from lab.enclosure import Enclosure, require_root
from lab.errors import CommandError, MissingError, RefusedError
from lab.local import components, credentials, layout, network, pause_image, refusal, settings
from lab.local.images import ImageStore
from lab.local.layout import Layout
from lab.places import binaries, models
from lab.progress import say, stage

_START_SECONDS = 180.0
_NODE_SECONDS = 90.0


class LocalCluster:
    """The provider `local`."""

    def __init__(self) -> None:
        self._layout = layout.at_default_place()
        self._enclosure = Enclosure(self._layout.folder)

    def up(self) -> None:
        """Make the cluster run; what is left of a dead one is cleared first, its data included."""
        require_root()
        with self._enclosure.locked():
            if self._healthy():
                say("the cluster runs already")
                return
            why_not = refusal.reason(refusal.look())
            if why_not:
                raise RefusedError(why_not)
            debian.provide()
            go_builds.provide([go_builds.KUBERNETES, go_builds.PAUSE])
            find("openssl", "apt-get install openssl")
            self._clear()
            try:
                self._start()
            except BaseException:
                self._enclosure.stop(grace_seconds=0)
                raise

    def down(self) -> None:
        """End everything that `up` started, and delete its data."""
        with self._enclosure.locked():
            self._clear()
        say("the cluster is down")

    def load(self, images: list[str]) -> None:
        """Bring images into the node."""
        if not self._healthy():
            raise MissingError("the cluster does not run: start it with: hack/cluster up")
        store = ImageStore(self._layout.containerd_socket)
        for image in images:
            with stage(f"loading {image}"):
                if not store.load(image):
                    say(f"{image} is there already")

    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        if not self._layout.kubeconfig.exists():
            raise MissingError("there is no cluster: start one with: hack/cluster up")
        return self._layout.kubeconfig

    def status(self) -> tuple[bool, str]:
        """Whether all is well, and one line for each part."""
        if self._enclosure.init is None:
            return False, "cluster: not running"
        report = self._enclosure.report
        lines = [f"cluster: {report.phase} {report.reason}".rstrip()]
        for name, one in report.components.items():
            ended = f" with exit status {one.exit_status}" if one.state == "exited" else ""
            log = f" (log: {self._enclosure.logs}/{name}.log)" if ended else ""
            lines.append(f"  {name}: {one.state}{ended}{log}")
        ready = self._node_ready()
        lines.append(f"  node: {'Ready' if ready else 'not Ready'}")
        return report.healthy and ready, "\n".join(lines)

    def _start(self) -> None:
        host_address, node_address = network.free_addresses()
        here = Layout(self._layout.folder, host_address, node_address)
        models().mkdir(parents=True, exist_ok=True)
        with stage("preparing certificates and configuration"):
            here.folder.mkdir(parents=True, mode=0o700)
            credentials.create(here)
            for name, text in settings.render(here).items():
                path = here.config_of(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            pause_image.write(go_builds.built(go_builds.PAUSE) / "pause", here.folder / "pause.tar")
            cgroups.create(here.cgroup)
        with stage("starting the components"):
            self._enclosure.start(
                components.plan(here, self._enclosure),
                connect=lambda pid: network.connect(pid, here.device, host_address, node_address),
            )
            self._enclosure.await_running(_START_SECONDS, say)
            ImageStore(here.containerd_socket).load(str(here.folder / "pause.tar"))
        with stage("waiting for the node to be Ready"):
            self._await_node()

    def _clear(self) -> None:
        self._enclosure.stop(grace_seconds=0)
        network.disconnect(self._layout.device)
        left = cgroups.remove(self._layout.cgroup)
        if left:
            raise CommandError("cgroups of the cluster could not be removed:\n" + "\n".join(left))
        if self._enclosure.folder.exists():
            with stage("deleting the data of the last cluster"):
                self._enclosure.forget()

    def _healthy(self) -> bool:
        return self._enclosure.init is not None and self._enclosure.report.healthy and self._node_ready()

    def _node_ready(self) -> bool:
        query = ["get", "node", layout.NODE, "--output=json", "--request-timeout=5s"]
        try:
            node = json.loads(
                run(
                    [binaries() / "kubectl", f"--kubeconfig={self._layout.kubeconfig}", *query],
                    timeout=20,
                    env={"NO_PROXY": "*", "no_proxy": "*"},
                )
            )
        except (CommandError, MissingError):
            return False
        conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
        tainted = [
            taint
            for taint in node["spec"].get("taints", [])
            if taint["key"].startswith("node.kubernetes.io/")
        ]
        return conditions.get("Ready") == "True" and not tainted

    def _await_node(self) -> None:
        limit = time.monotonic() + _NODE_SECONDS
        while not self._node_ready():
            dead = self._enclosure.report.dead
            if dead or time.monotonic() > limit:
                culprit = dead[0] if dead else "kubelet"
                raise CommandError(f"the node does not get Ready; see:\n{self._enclosure.log_tail(culprit)}")
            time.sleep(0.3)
