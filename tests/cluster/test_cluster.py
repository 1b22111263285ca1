"""What clients of the API's Service see of a cluster on a quiet day."""

from __future__ import annotations

import time

import pytest

from tests.support.deployment import ROOT
from tests.support.kubernetes import API, Cluster, load

PICTURE = ROOT / "examples" / "digits" / "7.png"


@pytest.mark.parametrize("service", [API, "octet-vnni", "octet-avx2"])
def test_predictions_over_http_and_grpc(cluster: Cluster, service: str) -> None:
    with load(cluster, service, "digits"):
        time.sleep(3)
    # Which they are after, too, when nobody waits for the first answers any more.
    with load(cluster, service, "digits") as seen:
        time.sleep(3)
    print(service, seen.phases)
    assert seen.counts().keys() == {"right"}


def test_both_pools_answer_with_the_same_bytes(cluster: Cluster) -> None:
    answer = cluster.octet("compare", "digits", PICTURE)
    assert (answer["equal"], {each["pool"] for each in answer["answers"]}) == (True, {"vnni", "avx2"}), answer


def test_the_release_passes_its_own_test(cluster: Cluster) -> None:
    assert "Phase:          Succeeded" in cluster.helm("test", "octet")
