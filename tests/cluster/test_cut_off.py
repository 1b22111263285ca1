"""Tests requests to the API's Service while a worker has no network, a full disk, or no database connection."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.watching import AWAY_S, watched
from tests.support.deployment import ROOT
from tests.support.kubernetes import BUCKET_PORT, Cluster, eventually_seen
from tests.support.waiting import WORK_TIMEOUT_S, eventually

POSTGRESQL_PORT = 5432
HEARTBEAT_S = 2.0
LOOK_S = 1.0  # After this time, even on a busy machine, the API has noticed that a worker is silent.
FILL = ["dd", "if=/dev/zero", "of=/data/filled", "bs=1M", "count=1100"]  # More than cacheVolume of values.yaml.
# A program that takes every free connection of PostgreSQL, prints their number, and keeps them until it is ended.
TAKE_ALL = """
import sys, time, psycopg
held = []
try:
    while True:
        held.append(psycopg.connect(sys.argv[1], connect_timeout=10))
except psycopg.OperationalError as error:
    print(len(held), error, flush=True)
time.sleep(600)
"""


RULES = {
    "the database": [["OUTPUT", "--protocol=tcp", f"--dport={POSTGRESQL_PORT}"]],
    "the bucket": [["OUTPUT", "--protocol=tcp", f"--dport={BUCKET_PORT}"]],
    "all": [["OUTPUT"], ["INPUT"]],
}


@contextmanager
def dropped(cluster: Cluster, pod: str, fault: str) -> Iterator[None]:
    """Drops all packets from and to a pod. The sender gets no error."""
    for rule in RULES[fault]:
        cluster.beside_container(pod, "iptables", "--insert", *rule, "--jump=DROP")
    try:
        yield
    finally:
        for rule in RULES[fault]:
            cluster.beside_container(pod, "iptables", "--delete", *rule, "--jump=DROP")


def is_there(cluster: Cluster) -> bool:
    """Returns true if the API lists the worker and its model."""
    return any(each["workers"] for each in cluster.octet("matrix", "digits")["rows"] if each["pool"] == "avx2")


@pytest.mark.parametrize("fault", list(RULES))
def test_a_worker_without_network_loses_no_request_and_comes_back(cluster: Cluster, fault: str) -> None:
    [pod] = cluster.pods("octet/pool=avx2")
    restarts = cluster.restarts(pod)
    name = f"cut off from {fault}"
    with watched(cluster, name) as seen:
        with dropped(cluster, pod, fault):
            time.sleep(AWAY_S)
            assert is_there(cluster) == (fault == "the bucket")
        eventually_seen(lambda: is_there(cluster))
    assert seen.counts().keys() == {"right"}
    assert cluster.restarts(pod) == restarts
    if fault == "all":
        assert seen.phases[name]["longest_ms"] <= 1000 * (2 * HEARTBEAT_S + LOOK_S)


def test_a_worker_with_a_full_disk_is_replaced(cluster: Cluster) -> None:
    """Kubernetes evicts the pod, even if another program has filled the volume."""
    [pod] = cluster.pods("octet/pool=avx2")
    with watched(cluster, "filling the node cache") as seen:
        # Kubernetes may end the command together with the pod, so its exit status is not checked
        cluster.kubectl("exec", pod, "--", *FILL, check=False)
        eventually(lambda: pod not in cluster.pods("octet/pool=avx2"), WORK_TIMEOUT_S)
        cluster.rolled("deployment/octet-avx2")
    cluster.kubectl("delete", "pod", pod, "--ignore-not-found")
    assert seen.counts().keys() == {"right"}


def test_nothing_is_lost_while_the_database_has_no_free_connection(cluster: Cluster) -> None:
    [pod] = cluster.pods("octet/pool=avx2")
    url = cluster.secret("octet-postgresql", "url").replace("octet-postgresql", cluster.address("octet-postgresql"))
    restarts = cluster.restarts(pod)
    with watched(cluster, "no connection is free") as seen:
        greedy = cluster.beside("n2", sys.executable, "-c", TAKE_ALL, url)
        try:
            assert greedy.stdout is not None
            assert "too many clients" in greedy.stdout.readline()
            cluster.kill(pod)  # the restarted worker needs new connections
            time.sleep(AWAY_S)
        finally:
            greedy.kill()
            greedy.communicate()
        cluster.until_again(pod, restarts)
        cluster.octet("push", ROOT / "examples" / "digits_int8.tflite", "--name", "digits", "--target", "x86-64-v3")
    assert seen.counts().keys() == {"right"}
