"""What clients see of a cluster while its parts are replaced and killed: `make test-cluster`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import kubernetes
from tests.support.deployment import ROOT
from tests.support.kubernetes import Cluster, installed, until_ready
from tests.support.waiting import WORK_TIMEOUT_S

TARGETS = {"vnni": "x86-64-v4+vnni", "avx2": "x86-64-v3"}
EXAMPLES = ROOT / "examples"
API = "octet"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = kubernetes.folder()
    if folder is None:
        pytest.skip("OCTET_TEST_CLUSTER names no cluster: nothing is tried on Kubernetes (tests/cluster/README.md)")
    with installed(Cluster(folder)) as found:
        for target in TARGETS.values():
            push(found, "digits_int8.tflite", "digits", target)
        yield found


def push(cluster: Cluster, file: str, name: str, target: str) -> None:
    cluster.octet("push", EXAMPLES / file, "--name", name, "--target", target, server=cluster.address(API))


@contextmanager
def load(cluster: Cluster, service: str) -> Iterator[dict[str, int]]:
    """Clients that ask a Service all the time; how often it answered what, at the end."""
    counts: dict[str, int] = {}
    url = cluster.address(service)
    variables = os.environ | {"KEY": cluster.key()}
    network = f"--net=/proc/{cluster.first_process('n2')}/ns/net"
    command = ["nsenter", network, "--", sys.executable, "-m", "tests.support.cluster_load", url, "digits"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=variables) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield counts
        process.stdin.close()
        counts |= json.loads(process.stdout.readline())
        assert process.wait(WORK_TIMEOUT_S) == 0


@pytest.mark.parametrize("pool", TARGETS)
def test_each_pool_answers(cluster: Cluster, pool: str) -> None:
    with load(cluster, f"octet-{pool}") as counts:
        pass
    assert counts.keys() == {"right"}


def test_nothing_is_lost_while_a_pool_is_rolled(cluster: Cluster) -> None:
    with load(cluster, "octet-vnni") as counts:
        cluster.kubectl("rollout", "restart", "deployment/octet-vnni")
        cluster.kubectl("rollout", "status", "deployment/octet-vnni", f"--timeout={2 * WORK_TIMEOUT_S:.0f}s")
    assert counts.keys() == {"right"}


def test_a_pod_that_is_killed_costs_what_it_had_in_flight(cluster: Cluster) -> None:
    """Clients of a pool's own Service have nobody between who could ask again."""
    (first, *_) = cluster.pods("octet/pool=vnni")
    with load(cluster, "octet-vnni") as counts:
        cluster.kill(first)
        until_ready(cluster, first)
    assert counts["right"] > 0
    assert counts.keys() <= {"right", "lost", "not accepted"}
    assert counts.get("lost", 0) <= 2 * 6  # a request of each client, and one more that was in the listener's queue


def test_models_answer_while_the_database_is_away(cluster: Cluster) -> None:
    with load(cluster, "octet-vnni") as counts:
        cluster.kubectl("delete", "pod", "octet-postgresql-0", "--grace-period=1")
        until_ready(cluster, "octet-postgresql-0")
    assert counts.keys() == {"right"}


def test_a_build_whose_worker_is_killed_is_done_again(cluster: Cluster) -> None:
    (worker,) = cluster.pods("app.kubernetes.io/component=compile-worker")
    name = f"again-{os.getpid()}"
    server = cluster.address(API)
    arguments = ("--name", name, "--target", TARGETS["avx2"], "--batch", "3", "--numerics", "litert-reference")
    cluster.octet("push", EXAMPLES / "digits_uint8.tflite", *arguments, "--detach", server=server)
    cluster.kill(worker)
    (build, *_) = json.loads(cluster.octet("builds", "--model", name, server=server))
    cluster.octet("builds", build["id"], "--wait", server=server)
