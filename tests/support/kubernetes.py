"""A cluster of real nodes on this machine, in which this project's chart is installed: `make test-cluster`.

`OCTET_TEST_CLUSTER` is the path of its folder. In it, `run/in COMMAND` runs a command in the network of the control
plane, `run/admin.conf` is the configuration for kubectl, `out/bin/kubectl` is the program, and `run/pids` contains the
first process of each node. tests/cluster/README.md describes how to create a cluster.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support import chart
from tests.support.deployment import ROOT
from tests.support.waiting import WORK_TIMEOUT_S, eventually

FILES = ROOT / "tests" / "cluster"
DEPLOYMENTS = ("octet", "octet-compile", "octet-vnni", "octet-avx2", "octet-arm")
API = "octet"
_LOOK_AGAIN_S = 2.0
_TASKS = ("ctr", "--namespace=k8s.io", "task")
BUCKET_PORT = 9000  # port at the control plane's address; it is the same as in values.yaml


def folder() -> Path | None:
    """Returns the folder of the cluster, or None if none is configured."""
    name = os.environ.get("OCTET_TEST_CLUSTER")
    return Path(name) if name else None


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        folder: the folder of the cluster.
        namespace: the namespace of the release under test.
    """

    folder: Path
    namespace: str = "default"

    def run(self, *command: str | Path, check: bool = True) -> str:
        """Runs a command in the control plane's network. Returns its output, including its errors if `check` is
        false.
        """
        done = subprocess.run(
            [self.folder / "run" / "in", *command], capture_output=True, text=True, timeout=2 * WORK_TIMEOUT_S
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def kubectl(self, *arguments: str | Path, check: bool = True) -> str:
        return self.run(self.folder / "out" / "bin" / "kubectl", *self._where(), *arguments, check=check)

    def _where(self) -> tuple[str, str]:
        return f"--kubeconfig={self.folder / 'run' / 'admin.conf'}", f"--namespace={self.namespace}"

    def helm_program(self) -> str:
        program = chart.helm()
        assert program is not None
        return program

    def helm(self, *arguments: str | Path) -> str:
        return self.run(self.helm_program(), *self._where(), *arguments)

    def address(self, service: str) -> str:
        """Returns the address of a Service. Commands in a node's network can reach it."""
        return self.kubectl("get", "service", service, "--output=jsonpath={.spec.clusterIP}")

    def key(self) -> str:
        """Returns the admin key that the chart created."""
        return self.secret("octet-keys", "admin-key")

    def secret(self, name: str, key: str) -> str:
        text = self.kubectl("get", "secret", name, f"--output=jsonpath={{.data.{key}}}")
        return base64.b64decode(text).decode()

    def pods(self, selector: str) -> list[str]:
        """Returns the names of the pods that have not failed and are not being deleted."""
        found = self.objects("pods", f"--selector={selector}", "--field-selector=status.phase!=Failed")
        return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """Returns the objects that `kubectl get` lists."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "--output=json"))["items"]
        return found

    def kill(self, pod: str) -> None:
        """Kills all processes of a pod's container with SIGKILL. Kubernetes restarts it; see `until_again`."""
        self.on_node(self.node_of(pod), *_TASKS, "kill", "--signal=SIGKILL", "--all", self._id(pod))

    def beside_container(self, pod: str, *command: str) -> None:
        """Runs a command of the pod's node, as the node's root user, in the network of the pod."""
        node = self.node_of(pod)
        tasks = dict(line.split()[:2] for line in self.on_node(node, *_TASKS, "list").splitlines())
        self.on_node(node, "nsenter", f"--target={tasks[self._id(pod)]}", "--net", "--", *command)

    def _id(self, pod: str) -> str:
        found: str = self._container(pod)["containerID"].partition("//")[2]
        return found

    def node_of(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "--output=jsonpath={.spec.nodeName}")

    def until_again(self, pod: str, restarts: int) -> None:
        """Waits until a pod's container has had more than `restarts` restarts and is ready."""
        eventually(
            lambda: (found := self._container(pod))["ready"] and found["restartCount"] > restarts, WORK_TIMEOUT_S
        )

    def restarts(self, pod: str) -> int:
        return int(self._container(pod)["restartCount"])

    def _container(self, pod: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "pod", pod, "--output=json"))
        first: dict[str, Any] = found["status"]["containerStatuses"][0]
        return first

    def on_node(self, node: str, *command: str) -> str:
        """Runs a command as root on a node, and returns its output."""
        entered = ["nsenter", f"--target={self.first_process(node)}", "--all", "--"]
        done = subprocess.run(
            [*entered, *command], check=True, stdout=subprocess.PIPE, text=True, timeout=WORK_TIMEOUT_S
        )
        return done.stdout

    def has_image(self, name: str) -> bool:
        """Returns true if every node has the image."""
        listed = [node["status"]["images"] for node in self.objects("nodes")]
        return all(any(name in (image["names"] or ()) for image in images) for images in listed)

    def beside(self, node: str, *command: str | Path) -> subprocess.Popen[str]:
        """Starts a command of this machine in the network of a node. Services can be reached from there."""
        network = f"--net=/proc/{self.first_process(node)}/ns/net"
        return subprocess.Popen(["nsenter", network, "--", *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def octet(self, *arguments: str | Path) -> Any:
        """Runs `octet` against the API's Service, and returns its output parsed as JSON."""
        server = f"http://{self.address(API)}:8080"
        command = [sys.executable, "-m", "service.cli", *arguments, "--server", server, "--key", self.key(), "--json"]
        process = self.beside("n2", *command)
        output, _ = process.communicate(timeout=2 * WORK_TIMEOUT_S)
        assert process.returncode == 0, output
        return json.loads(output) if output.strip() else None

    def until_all_ready(self) -> None:
        """Waits until every Deployment has all its pods and the database responds."""
        for name in DEPLOYMENTS:
            self.rolled(f"deployment/{name}")
        self.rolled("statefulset/octet-postgresql")

    def rolled(self, name: str) -> None:
        self.kubectl("rollout", "status", name, f"--timeout={2 * WORK_TIMEOUT_S:.0f}s")

    def first_process(self, node: str) -> int:
        """Returns the process that is the ancestor of all others of the node."""
        for line in (self.folder / "run" / "pids").read_text().splitlines():
            number, name = line.split()
            if name == node:
                children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
                return int(children[0])
        raise LookupError(node)


@dataclass
class Load:
    """The clients of a Service and their results; see `cluster_load`.

    Attributes:
        orders: the standard input of the clients.
        phases: name -> the results of the phase. It is filled when the clients have ended.
    """

    orders: IO[str]
    phases: dict[str, Any] = field(default_factory=dict)

    def phase(self, name: str) -> None:
        """Begins a new phase. Requests that begin from now on are counted separately."""
        print(name, file=self.orders, flush=True)

    def counts(self) -> dict[str, int]:
        """Returns the counts of all phases together."""
        found: dict[str, int] = {}
        for phase in self.phases.values():
            for what, count in phase["counts"].items():
                found[what] = found.get(what, 0) + count
        return found


@contextmanager
def load(cluster: Cluster, service: str, model: str, pause_s: float = 0.0) -> Iterator[Load]:
    """Runs clients that continuously send requests for a model to a Service, with a pause after each."""
    network = f"--net=/proc/{cluster.first_process('n2')}/ns/net"
    program = [sys.executable, "-m", "tests.support.cluster_load", cluster.address(service), model, str(pause_s)]
    pipe, variables = subprocess.PIPE, os.environ | {"KEY": cluster.key()}
    with subprocess.Popen(
        ["nsenter", network, "--", *program], stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=variables
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            load = Load(process.stdin)
            yield load
        finally:
            process.stdin.close()
            line = process.stdout.readline()
            assert process.wait(WORK_TIMEOUT_S) == 0
        load.phases = json.loads(line)


@contextmanager
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """Installs the chart again, with an empty bucket outside of the cluster. Waits until all pods are ready.

    The chart stays installed afterwards.
    """
    bucket = subprocess.Popen(
        [cluster.folder / "run" / "in", sys.executable, "-m", "tests.support.cluster_bucket", str(BUCKET_PORT)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert bucket.stdout is not None
        environment = json.loads(bucket.stdout.readline())
        _label(cluster)
        _uninstall(cluster)
        cluster.kubectl("apply", f"--filename={FILES / 'volume.yaml'}")
        # The path of a volume belongs to root, whatever the pod's fsGroup is.
        cluster.on_node("n1", "install", "--directory", "--owner=999", "--group=999", "/var/lib/hand")
        secret = [
            f"--from-literal={name}={environment[name]}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        ]
        cluster.kubectl("create", "secret", "generic", "bucket", *secret, check=False)  # the secret may exist
        cluster.helm("upgrade", "--install", "octet", chart.CHART, f"--values={FILES / 'values.yaml'}")
        cluster.until_all_ready()
        yield cluster
    finally:
        bucket.terminate()
        bucket.communicate(timeout=WORK_TIMEOUT_S)


def _label(cluster: Cluster) -> None:
    """Assigns the nodes to pools. Gives the ARM node's image the common name.

    A registry would have one image for both architectures. Without a registry, there are two images, and the ARM node
    has its own image under the common name.
    """
    for node, label in (("n1", "octet/pool=vnni"), ("n2", "octet/pool=avx2"), ("n3", "kubernetes.io/arch=arm64")):
        cluster.kubectl("label", "--overwrite", "node", node, label)
    for tag in ("1", "2"):
        names = ("octet.test/octet-worker-arm64:1", f"octet.test/octet-worker:{tag}")
        cluster.on_node("n3", "ctr", "--namespace=k8s.io", "image", "tag", "--force", *names)


def _uninstall(cluster: Cluster) -> None:
    """Removes the release of an earlier run, because its database refers to blobs in a bucket that does not exist any
    more.
    """
    if API in cluster.helm("list", "--short").split():
        cluster.helm("uninstall", API)
    cluster.kubectl("wait", "pod", "--selector=app.kubernetes.io/instance=octet", "--for=delete", check=False)
    for what in ("pvc/data-octet-postgresql-0", "pv/hand"):
        cluster.kubectl("delete", what, "--ignore-not-found")
    cluster.on_node("n1", "rm", "--recursive", "--force", "/var/lib/hand")


def until_ready(cluster: Cluster, name: str) -> None:
    """Waits until a pod of this name exists and is ready."""
    shown = "--output=jsonpath={.status.containerStatuses[0].ready}"
    eventually(lambda: cluster.kubectl("get", "pod", name, shown, check=False) == "true", WORK_TIMEOUT_S)


def eventually_seen(condition: Callable[[], bool]) -> None:
    """Waits like `eventually`, for conditions that are expensive: checking them runs a command, which takes a second of
    processor time.
    """

    def holds() -> bool:
        if condition():
            return True
        time.sleep(_LOOK_AGAIN_S)
        return False

    eventually(holds, WORK_TIMEOUT_S)
