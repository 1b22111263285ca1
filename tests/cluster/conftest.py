"""Fixtures: a release of the chart on the cluster in OCTET_TEST_CLUSTER, with models for the x86 pools and for the ARM
pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import kubernetes
from tests.support.deployment import ROOT
from tests.support.kubernetes import Cluster, eventually_seen, installed

MODEL = ROOT / "examples" / "digits_int8.tflite"
TARGETS = {"vnni": "x86-64-v4+vnni", "avx2": "x86-64-v3"}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    folder = kubernetes.folder()
    if folder is None:
        pytest.skip("OCTET_TEST_CLUSTER names no cluster: nothing is tried on Kubernetes (tests/cluster/README.md)")
    with installed(Cluster(folder)) as found:
        for target in TARGETS.values():
            found.octet("push", MODEL, "--name", "digits", "--target", target)
        found.octet("push", MODEL, "--name", "boards", "--target", "aarch64+dotprod")
        eventually_seen(lambda: row(found, "boards", "arm")["state"] == "ready")
        yield found


def row(cluster: Cluster, model: str, pool: str) -> dict[str, Any]:
    """Returns the row of `octet matrix` for a model on a pool."""
    rows = cluster.octet("matrix", model)["rows"]
    found: dict[str, Any] = next(each for each in rows if each["pool"] == pool)
    return found
