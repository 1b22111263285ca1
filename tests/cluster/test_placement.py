"""Tests on which nodes Kubernetes places the pools of examples/pools.yaml. The nodes are simulated, because no GPUs are
available.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import chart
from tests.support.kubernetes import Cluster
from tests.support.waiting import WORK_TIMEOUT_S, eventually

NVIDIA = "nvidia.com/gpu"
TAINT = {"key": NVIDIA, "value": "present", "effect": "NoSchedule"}
CPUID = "feature.node.kubernetes.io/cpu-cpuid"


def card(major: int, minor: int, **more: Any) -> dict[str, Any]:
    labels = {f"{NVIDIA}.compute.major": str(major), f"{NVIDIA}.compute.minor": str(minor)}
    return {"labels": labels, "taints": [TAINT], **more}


NODES: Mapping[str, Mapping[str, Any]] = {
    "pretended-sm80": card(8, 0, capacity={NVIDIA: "1"}),
    "pretended-sm90": card(9, 0, capacity={NVIDIA: "1"}),
    "pretended-without-plugin": card(8, 0),
    "pretended-vnni": {"labels": {f"{CPUID}.AVX512VNNI": "true"}},
    "pretended-avx2": {"labels": {f"{CPUID}.AVX2": "true"}},
    "pretended-arm": {"labels": {"kubernetes.io/arch": "arm64", f"{CPUID}.ASIMDDP": "true"}},
}
RUNTIME_CLASS = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
"""


@contextmanager
def pretended(cluster: Cluster, file: Path) -> Iterator[None]:
    """Adds simulated nodes. Their pods are ready at once."""
    file.write_text(json.dumps(NODES))
    run = cluster.folder / "run"
    program = map(str, (run / "in", sys.executable, cluster.folder / "fakenodes.py", run, file, 3 * WORK_TIMEOUT_S))
    process = subprocess.Popen(list(program), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        cluster.kubectl("delete", "node", "--ignore-not-found", *NODES)


@pytest.fixture
def pools(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """A namespace that contains only the pools of the example, and no other part of a release."""
    shown = [f"--show-only=templates/{name}.yaml" for name in ("pools", "secrets")]
    values = f"--values={chart.EXAMPLES / 'pools.yaml'}"
    done = chart.run("template", "octet", chart.CHART, values, "--kube-version=1.20.2", *shown)
    assert done.returncode == 0, done.stderr
    (tmp_path / "pools.yaml").write_text(f"{RUNTIME_CLASS}---\n{done.stdout}")
    cluster.kubectl("create", "namespace", "cards")
    found = replace(cluster, namespace="cards")
    with pretended(cluster, tmp_path / "nodes.json"):
        try:
            found.kubectl("apply", f"--filename={tmp_path / 'pools.yaml'}")
            yield found
        finally:
            cluster.kubectl("delete", "namespace", "cards")
            cluster.kubectl("delete", "runtimeclass", "nvidia", "--ignore-not-found")


def places(pools: Cluster) -> dict[str, list[str]]:
    """Returns the nodes of each pool's pods; "" for a pod that waits for a node."""
    found: dict[str, list[str]] = {}
    for pod in pools.objects("pods"):
        if "deletionTimestamp" not in pod["metadata"]:
            found.setdefault(pod["metadata"]["labels"]["octet/pool"], []).append(pod["spec"].get("nodeName", ""))
    return {pool: sorted(nodes) for pool, nodes in found.items()}


def why_pending(pools: Cluster) -> str:
    return "".join(
        condition.get("message", "")
        for pod in pools.objects("pods", "--field-selector=status.phase=Pending")
        for condition in pod["status"].get("conditions", [])
    )


def test_pools_are_placed_by_node_features_and_each_gpu_is_used_once(pools: Cluster) -> None:
    own = {
        "vnni": ["pretended-vnni"] * 2,
        "avx2": ["pretended-avx2"],
        "arm": ["pretended-arm"] * 2,
        "sm80": ["pretended-sm80"],
    }
    eventually(lambda: places(pools) == own, WORK_TIMEOUT_S)
    # A node has no room for a third pod of four cores during a rollout, so a GPU pool ends one of its pods first.
    pools.kubectl("rollout", "restart", "deployment/octet-sm80")
    pools.rolled("deployment/octet-sm80")
    assert places(pools)["sm80"] == ["pretended-sm80"]
    pools.kubectl("scale", "deployment/octet-sm80", "--replicas=2")
    eventually(lambda: f"Insufficient {NVIDIA}" in why_pending(pools), WORK_TIMEOUT_S)
    assert places(pools)["sm80"] == ["", "pretended-sm80"]
    pools.kubectl("delete", "node", "pretended-sm80")
    eventually(lambda: places(pools)["sm80"] == ["", ""], WORK_TIMEOUT_S)
