"""A cluster of real nodes on this machine, with this project's chart installed: `make test-cluster`.

`OCTET_TEST_CLUSTER` names its folder: `run/in COMMAND` runs a command in the network of the control plane,
`run/admin.conf` is for kubectl, `out/bin/kubectl` is that, and `run/pids` holds the first process of each node.
tests/cluster/README.md says how to make one.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import chart
from tests.support.deployment import ROOT
from tests.support.waiting import WORK_TIMEOUT_S, eventually

FILES = ROOT / "tests" / "cluster"
BUCKET_PORT = 9000  # of the control plane's address; as values.yaml says


def folder() -> Path | None:
    """Where the cluster is; None where none is named."""
    name = os.environ.get("OCTET_TEST_CLUSTER")
    return Path(name) if name else None


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up."""

    folder: Path

    def run(self, *command: str | Path, check: bool = True) -> str:
        """Runs a command in the control plane's network; its standard output."""
        done = subprocess.run(
            [self.folder / "run" / "in", *command], capture_output=True, text=True, timeout=2 * WORK_TIMEOUT_S
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str | Path, check: bool = True) -> str:
        configuration = f"--kubeconfig={self.folder / 'run' / 'admin.conf'}"
        return self.run(self.folder / "out" / "bin" / "kubectl", configuration, *arguments, check=check)

    def helm(self, *arguments: str | Path) -> str:
        program = chart.helm()
        assert program is not None
        return self.run(program, f"--kubeconfig={self.folder / 'run' / 'admin.conf'}", *arguments)

    def address(self, service: str) -> str:
        """The URL of a Service, for commands in a node's network."""
        return f"http://{self.kubectl('get', 'service', service, '--output=jsonpath={.spec.clusterIP}')}:8080"

    def key(self) -> str:
        """The admin key that the chart made."""
        text = self.kubectl("get", "secret", "octet-keys", "--output=jsonpath={.data.admin-key}")
        return base64.b64decode(text).decode()

    def pods(self, selector: str) -> list[str]:
        listed = json.loads(self.kubectl("get", "pods", f"--selector={selector}", "--output=json"))["items"]
        return [each["metadata"]["name"] for each in listed if "deletionTimestamp" not in each["metadata"]]

    def kill(self, pod: str) -> None:
        """Ends every process of a pod's container with SIGKILL."""
        found = json.loads(self.kubectl("get", "pod", pod, "--output=json"))
        container = found["status"]["containerStatuses"][0]["containerID"].partition("//")[2]
        program = ["ctr", "--namespace=k8s.io", "task", "kill", "--signal=SIGKILL", "--all", container]
        self.on_node(found["spec"]["nodeName"], *program)

    def on_node(self, node: str, *command: str) -> None:
        """Runs a command as root of a node."""
        process = self.first_process(node)
        subprocess.run(["nsenter", f"--target={process}", "--all", "--", *command], check=True, timeout=WORK_TIMEOUT_S)

    def beside(self, node: str, *command: str | Path) -> subprocess.Popen[str]:
        """Starts a command of this machine in a node's network, where Services are reached."""
        network = f"--net=/proc/{self.first_process(node)}/ns/net"
        return subprocess.Popen(["nsenter", network, "--", *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def octet(self, *arguments: str | Path, server: str) -> str:
        command = [sys.executable, "-m", "service.cli", *arguments, "--server", server, "--key", self.key(), "--json"]
        process = self.beside("n2", *command)
        output, _ = process.communicate(timeout=2 * WORK_TIMEOUT_S)
        assert process.returncode == 0, output
        return output

    def first_process(self, node: str) -> int:
        """The process that the node's others descend from."""
        for line in (self.folder / "run" / "pids").read_text().splitlines():
            number, name = line.split()
            if name == node:
                children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
                return int(children[0])
        raise LookupError(node)


@contextmanager
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """The chart, with a bucket beside the cluster; every pod is ready. What is installed stays."""
    bucket = subprocess.Popen(
        [cluster.folder / "run" / "in", sys.executable, "-m", "tests.support.cluster_bucket", str(BUCKET_PORT)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert bucket.stdout is not None
        environment = json.loads(bucket.stdout.readline())
        for node, pool in (("n1", "vnni"), ("n2", "avx2")):
            cluster.kubectl("label", "--overwrite", "node", node, f"octet/pool={pool}")
        cluster.kubectl("apply", f"--filename={FILES / 'volume.yaml'}")
        # A volume by path stays root's, whatever the pod's fsGroup.
        cluster.on_node("n1", "install", "--directory", "--owner=999", "--group=999", "/var/lib/hand")
        secret = [
            f"--from-literal={name}={environment[name]}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        ]
        cluster.kubectl("create", "secret", "generic", "bucket", *secret, check=False)  # which may be there
        cluster.helm("upgrade", "--install", "octet", chart.CHART, f"--values={FILES / 'values.yaml'}")
        for name in ("octet", "octet-compile", "octet-vnni", "octet-avx2"):
            cluster.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={2 * WORK_TIMEOUT_S:.0f}s")
        yield cluster
    finally:
        bucket.terminate()
        bucket.communicate(timeout=WORK_TIMEOUT_S)


def ready(cluster: Cluster, name: str) -> bool:
    return cluster.kubectl("get", "pod", name, "--output=jsonpath={.status.containerStatuses[0].ready}") == "true"


def until_ready(cluster: Cluster, name: str) -> None:
    eventually(lambda: ready(cluster, name), WORK_TIMEOUT_S)
