"""A release of the chart on the cluster that OCTET_TEST_CLUSTER names, with one model for both pools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import kubernetes
from tests.support.deployment import ROOT
from tests.support.kubernetes import Cluster, installed

TARGETS = {"vnni": "x86-64-v4+vnni", "avx2": "x86-64-v3"}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    folder = kubernetes.folder()
    if folder is None:
        pytest.skip("OCTET_TEST_CLUSTER names no cluster: nothing is tried on Kubernetes (tests/cluster/README.md)")
    with installed(Cluster(folder)) as found:
        for target in TARGETS.values():
            found.octet("push", ROOT / "examples" / "digits_int8.tflite", "--name", "digits", "--target", target)
        yield found
