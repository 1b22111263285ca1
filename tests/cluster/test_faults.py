"""Tests requests to the API's Service while parts of a cluster are replaced, killed and cut off."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.watching import AWAY_S, STEADY_S, watched
from tests.support import chart
from tests.support.deployment import ROOT
from tests.support.kubernetes import BUCKET_PORT, DEPLOYMENTS, FILES, Cluster, until_ready
from tests.support.waiting import WORK_TIMEOUT_S, eventually

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_nothing_is_lost_while_a_deployment_is_rolled(cluster: Cluster, name: str) -> None:
    with watched(cluster, f"rolling {name}", model="boards" if name == "octet-arm" else "digits") as seen:
        cluster.kubectl("rollout", "restart", f"deployment/{name}")
        cluster.rolled(f"deployment/{name}")
    assert seen.counts().keys() == {"right"}


def test_nothing_is_lost_by_an_upgrade_and_its_rollback(cluster: Cluster) -> None:
    """Old and new processes run at the same time for a while. During this time, the old processes use tables of the new
    version."""
    if not cluster.has_image("octet.test/octet-cluster:2"):
        pytest.skip("NOT TESTED: the nodes have no images of a later version (tests/cluster/README.md)")
    with watched(cluster, "upgrading") as seen:
        cluster.helm("upgrade", "octet", chart.CHART, f"--values={FILES / 'values.yaml'}", "--set-string=image.tag=2")
        cluster.until_all_ready()
        push_again(cluster)
        seen.phase("rolling back")
        cluster.helm("rollback", "octet")
        cluster.until_all_ready()
        push_again(cluster)
    assert seen.counts().keys() == {"right"}


def push_again(cluster: Cluster) -> None:
    """Pushes a model so that a new build is needed: the batch size depends on the time."""
    batch = 2 + time.time_ns() % 30
    cluster.octet("push", EXAMPLES / "digits_int8.tflite", "--name", "moved", "--batch", str(batch))
    builds = [cluster.octet("builds", each["id"]) for each in cluster.octet("builds", "--model", "moved")]
    failed = [each["error"] for each in builds if each["state"] not in ("succeeded", "queued", "running")]
    # A build that was requested for another compiler version is resubmitted for the installed one.
    assert all("replaces it" in error["hint"] for error in failed), failed


def test_nothing_is_lost_while_a_node_is_drained(cluster: Cluster) -> None:
    with watched(cluster, "draining n2") as seen, uncordoned(cluster, "n2"):
        drain(cluster, "n2", WORK_TIMEOUT_S)
        time.sleep(STEADY_S)
    cluster.until_all_ready()
    assert seen.counts().keys() == {"right"}


def test_a_drain_leaves_the_last_worker_of_a_pool(cluster: Cluster) -> None:
    """The pool has no other node, so the drain waits. This is also the case for the database, whose pod is to be
    evicted.
    """
    with watched(cluster, "draining n1") as seen, uncordoned(cluster, "n1"):
        assert "Cannot evict pod" in drain(cluster, "n1", AWAY_S, ends=False)
        assert cluster.pods("octet/pool=vnni")
    cluster.until_all_ready()
    assert seen.counts().keys() == {"right"}


def drain(cluster: Cluster, node: str, within_s: float, *, ends: bool = True) -> str:
    return cluster.kubectl("drain", node, "--delete-emptydir-data", f"--timeout={within_s:.0f}s", check=ends)


@contextmanager
def uncordoned(cluster: Cluster, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.kubectl("uncordon", node)


@pytest.mark.parametrize("pool", ["vnni", "avx2"])
def test_a_killed_worker_loses_no_request(cluster: Cluster, pool: str) -> None:
    """The API retries on another worker. The clients do not pause, so that each worker has requests when killed."""
    pods = cluster.pods(f"octet/pool={pool}")
    with watched(cluster, f"killing {pool}", pause_s=0.0) as seen:
        for pod in pods:
            restarts = cluster.restarts(pod)
            cluster.kill(pod)
            cluster.until_again(pod, restarts)
    assert seen.counts().keys() == {"right"}


def test_a_killed_api_loses_only_its_requests_in_flight(cluster: Cluster) -> None:
    (pod, *_) = cluster.pods("app.kubernetes.io/component=api")
    with watched(cluster, "killing an API", pause_s=0.0) as seen:
        restarts = cluster.restarts(pod)
        cluster.kill(pod)
        cluster.until_again(pod, restarts)
    counts = seen.counts()
    assert counts.keys() <= {"right", "lost", "not accepted"}
    # one request of each client, and one more of each that was in the listener's queue
    assert counts.get("lost", 0) <= 2 * 6


def test_a_build_of_a_killed_worker_is_finished_by_the_next(cluster: Cluster) -> None:
    (worker,) = cluster.pods("app.kubernetes.io/component=compile-worker")
    name = f"again-{os.getpid()}"
    arguments = ("--name", name, "--target", "x86-64-v3", "--batch", "1,3", "--detach")
    cluster.octet("push", EXAMPLES / "digits_16x8.tflite", *arguments)
    eventually(lambda: "running" in states(cluster, name), WORK_TIMEOUT_S)
    cluster.kill(worker)
    killed_s = time.monotonic()
    eventually(lambda: set(states(cluster, name)) == {"succeeded"}, WORK_TIMEOUT_S)
    print(f"all builds were done {time.monotonic() - killed_s:.0f} s after the worker was killed")
    builds = [cluster.octet("builds", each["id"]) for each in cluster.octet("builds", "--model", name)]
    assert sorted(each["attempt"] for each in builds) == [1, 2], builds
    assert len({each["artifact"] for each in builds}) == len(builds) == 2


def states(cluster: Cluster, model: str) -> list[str]:
    return [each["state"] for each in cluster.octet("builds", "--model", model)]


def test_models_answer_during_an_outage_of_the_database(cluster: Cluster) -> None:
    with watched(cluster, "deleting the database's pod") as seen:
        cluster.kubectl("delete", "pod", "octet-postgresql-0", "--grace-period=1")
        cluster.octet("push", EXAMPLES / "digits_int8.tflite", "--name", "digits", "--target", "x86-64-v3")
        until_ready(cluster, "octet-postgresql-0")
    assert seen.counts().keys() == {"right"}


@pytest.mark.parametrize("fault", ["DROP", "REJECT"])
def test_loaded_models_answer_during_an_outage_of_the_bucket(cluster: Cluster, fault: str) -> None:
    name = f"{fault.lower()}-{os.getpid()}"
    rule = ["INPUT", "-p", "tcp", "--dport", str(BUCKET_PORT), "-j", fault]
    if fault == "REJECT":
        rule += ["--reject-with", "tcp-reset"]
    with watched(cluster, f"bucket away by {fault}") as seen:
        cluster.run("iptables", "--insert", *rule)
        try:
            time.sleep(AWAY_S)
        finally:
            cluster.run("iptables", "--delete", *rule)
        cluster.octet("push", EXAMPLES / "digits_uint8.tflite", "--name", name, "--target", "x86-64-v3")
    assert seen.counts().keys() == {"right"}
