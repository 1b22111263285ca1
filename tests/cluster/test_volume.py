"""Tests the chart without a bucket: all its pods share a volume of one node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.cluster.conftest import MODEL
from tests.cluster.watching import watched
from tests.support import chart
from tests.support.kubernetes import FILES, Cluster

PLACE = "/var/lib/tried"


@pytest.fixture(scope="module")
def tried(cluster: Cluster) -> Iterator[Cluster]:
    """A second release, in its own namespace."""
    found = replace(cluster, namespace="tried")
    _remove(cluster)
    # A hostPath volume is owned by root, even if the pod sets fsGroup.
    cluster.on_node("n2", "install", "--directory", "--owner=10001", "--group=10001", PLACE)
    cluster.kubectl("create", "namespace", "tried")
    try:
        found.kubectl("apply", f"--filename={FILES / 'tried-volume.yaml'}")
        values = [f"--values={FILES / name}.yaml" for name in ("values", "tried")]
        found.helm("install", "tried", chart.CHART, *values, "--wait", "--timeout=10m")
        yield found
    finally:
        _remove(cluster)


def _remove(cluster: Cluster) -> None:
    for what in ("namespace/tried", "pv/tried"):
        cluster.kubectl("delete", what, "--ignore-not-found")
    cluster.on_node("n2", "rm", "--recursive", "--force", PLACE)


def test_a_release_without_a_bucket_passes_its_own_test(tried: Cluster) -> None:
    assert "Phase:          Succeeded" in tried.helm("test", "tried")


def test_pods_that_share_the_volume_are_on_its_node_and_are_rolled_there(tried: Cluster) -> None:
    tried.octet("push", MODEL, "--name", "digits", "--target", "x86-64-v3")
    with watched(tried, "rolling all of a release with one volume") as seen:
        for name in ("octet", "octet-compile", "octet-avx2"):
            tried.kubectl("rollout", "restart", f"deployment/{name}")
            tried.rolled(f"deployment/{name}")
        tried.octet("push", MODEL, "--name", "digits", "--target", "x86-64-v3", "--batch", "2")
    assert seen.counts().keys() == {"right"}
    sharing = tried.objects("pods", "--selector=octet/data=shared")
    assert {pod["spec"]["nodeName"] for pod in sharing} == {"n2"}
    assert len(sharing) >= 5
