"""Tests clients of the API's Service on a cluster without faults."""

from __future__ import annotations

import time

import pytest

from tests.cluster.conftest import MODEL, row
from tests.support.deployment import ROOT
from tests.support.kubernetes import API, Cluster, load

PICTURE = ROOT / "examples" / "digits" / "7.png"


@pytest.mark.parametrize(
    ("service", "model"),
    [(API, "digits"), ("octet-vnni", "digits"), ("octet-avx2", "digits"), (API, "boards"), ("octet-arm", "boards")],
)
def test_predictions_over_http_and_grpc(cluster: Cluster, service: str, model: str) -> None:
    with load(cluster, service, model):
        time.sleep(3)
    # Runs the clients again, after the first ones have left without waiting for their last responses.
    with load(cluster, service, model) as seen:
        time.sleep(3)
    print(service, model, seen.phases)
    assert seen.counts().keys() == {"right"}


def test_an_arm_worker_verifies_what_no_compile_worker_can_run(cluster: Cluster) -> None:
    found = row(cluster, "boards", "arm")
    assert (found["state"], found["verified"], found["target"]) == ("ready", True, "aarch64+dotprod"), found
    assert found["p50_s"] > 0


def test_all_pools_respond_with_the_same_bytes(cluster: Cluster) -> None:
    cluster.octet("push", MODEL, "--name", "boards", "--target", "all")
    answer = cluster.octet("compare", "boards", PICTURE)
    assert (answer["equal"], {each["pool"] for each in answer["answers"]}) == (True, {"vnni", "avx2", "arm"}), answer
    assert not [each["problem"] for each in answer["answers"] if each["problem"]]


def test_the_release_passes_its_own_test(cluster: Cluster) -> None:
    assert "Phase:          Succeeded" in cluster.helm("test", "octet")
