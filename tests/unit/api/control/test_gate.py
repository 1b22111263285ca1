"""The scores that a version needs in order to be promoted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cache import Manifest
from service.core.artifacts.artifact import ARTIFACT_TYPE, Report
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import Digest, canonical_json, digest_of
from service.core.provenance import sealed, signer_of
from service.core.settings import Settings
from tests.support.control_plane import MODEL, ControlPlane, control_plane, problem
from tests.support.scores import DATA, score_of
from tests.support.signing import needs_signatures, write_pair

ELSEWHERE, AS_WELL = "aarch64", "aarch64+dotprod"


def publish(plane: ControlPlane, text: str) -> Digest:
    """Ends the oldest build successfully, with an artifact of its own."""
    claim = plane.claim()
    layout = plane.services.layout
    config = layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json({"text": text}))
    artifact = layout.put_manifest(Manifest(ARTIFACT_TYPE, config, ())).digest
    plane.services.builds.finish(claim, artifact=artifact)
    return artifact


@pytest.fixture
def artifact(plane: ControlPlane) -> Digest:
    plane.push(target=ELSEWHERE)
    return publish(plane, "first")


def promote(plane: ControlPlane, version: int = 1, **members: Any) -> httpx.Response:
    return plane.client.post("/api/v1/models/digits/promote", json={"version": version, **members})


def put_score(plane: ControlPlane, artifact: Digest, document: bytes) -> httpx.Response:
    return plane.client.put(f"/api/v1/artifacts/{artifact}/score", content=document)


def attach(plane: ControlPlane, artifact: Digest, **values: float) -> None:
    assert put_score(plane, artifact, score_of(artifact, **values).to_bytes()).status_code == 204


def test_a_version_without_a_score_is_promoted_only_if_none_is_required(plane: ControlPlane, artifact: Digest) -> None:
    refused = problem(promote(plane, least={"top1": 0.7}), 409, "gate_not_passed")
    assert refused["detail"] == (
        f"version 1 of model 'digits' is not promoted: artifact {artifact} for {ELSEWHERE} has no score, but needs "
        "top1 of at least 0.7"
    )
    assert refused["hint"] == "octet evaluate digits:1 --data DIR --labels FILE --attach"
    compared = problem(promote(plane, least={"equal_outputs.low": 0.9}), 409, "gate_not_passed")
    assert "--against RUNTIME" in compared["hint"]
    assert promote(plane).status_code == 200


def test_the_score_decides(plane: ControlPlane, artifact: Digest) -> None:
    attach(plane, artifact, top1=0.7, equal_outputs=1.0)
    refused = problem(promote(plane, least={"top1": 0.71}), 409, "gate_not_passed")
    assert "top1 is 0.7" in refused["detail"]
    assert plane.client.get("/api/v1/models/digits/aliases").json()["aliases"] == []
    assert promote(plane, least={"top1": 0.7, "top1.low": 0.6, "equal_outputs": 1}).status_code == 200


def test_a_canary_needs_the_scores_too_but_a_rollback_does_not(plane: ControlPlane, artifact: Digest) -> None:
    plane.push(MODEL + b"2", target=ELSEWHERE)
    publish(plane, "second")
    assert promote(plane, 1).status_code == promote(plane, 2).status_code == 200
    problem(promote(plane, 1, percent=10, least={"top1": 0.1}), 409, "gate_not_passed")
    assert plane.client.post("/api/v1/models/digits/rollback").json()["version"] == 1


def test_the_settings_of_a_model_require_scores_of_every_promotion(tmp_path: Path) -> None:
    least = {"digits": {"promote_least": {"top1": 0.7}, "promote_data": DATA}}
    with control_plane(tmp_path, models=least) as plane:
        plane.push(target=ELSEWHERE)
        artifact = publish(plane, "first")
        plane.push(MODEL + b"other", target=ELSEWHERE, name="other")
        publish(plane, "other")
        assert plane.client.post("/api/v1/models/other/promote", json={"version": 1}).status_code == 200
        problem(promote(plane), 409, "gate_not_passed")
        attach(plane, artifact, top1=0.69)
        problem(promote(plane, least={"top1": 0.1}), 409, "gate_not_passed")
        elsewhere = replace(score_of(artifact, top1=0.9), data_digest=digest_of(b"another data set"))
        assert put_score(plane, artifact, elsewhere.to_bytes()).status_code == 204
        assert "only" in problem(promote(plane), 409, "gate_not_passed")["detail"]
        attach(plane, artifact, top1=0.7)
        assert promote(plane).status_code == 200


def test_a_score_counts_for_all_targets_with_the_same_numerics_mode(plane: ControlPlane, artifact: Digest) -> None:
    attach(plane, artifact, top1=0.9)
    requested = {"numerics": "xnnpack"}
    for changes in ({"numerics": "litert-reference"}, {}, {"accept_differences": True}):
        body = {"targets": [AS_WELL], "options": requested | changes}
        response = plane.client.post("/api/v1/models/digits/builds", json=body)
        assert response.status_code == 202, response.text
        other = publish(plane, str(changes))
        if changes == {"numerics": "litert-reference"}:
            assert promote(plane, least={"top1": 0.8}).status_code == 200
            continue
        refused = problem(promote(plane, least={"top1": 0.8}), 409, "gate_not_passed")
        assert f"artifact {other} for {AS_WELL} has no score" in refused["detail"]
        attach(plane, other, top1=0.9)
        assert promote(plane, least={"top1": 0.8}).status_code == 200
    attach(plane, other, top1=0.7)
    problem(promote(plane, least={"top1": 0.8}), 409, "gate_not_passed")


@needs_signatures
def test_only_a_score_that_a_trusted_key_signed_counts(tmp_path: Path) -> None:
    key, public = write_pair(tmp_path)
    with control_plane(tmp_path / "data", trusted_keys=str(public)) as plane:
        plane.push(target=ELSEWHERE)
        artifact = publish(plane, "first")
        statement = score_of(artifact, top1=0.9).to_bytes()
        refused = problem(put_score(plane, artifact, statement), 403, "forbidden")
        assert "is not signed" in refused["detail"]
        plane.services.layout.attach(artifact, Report.SCORE, statement)  # as a registry could deliver it
        refused = problem(promote(plane, least={"top1": 0.8}), 409, "gate_not_passed")
        assert "is not signed" in refused["detail"]
        signed, _ = sealed(statement, signer_of(Settings(signing_key=key)))
        assert put_score(plane, artifact, signed).status_code == 204
        assert promote(plane, least={"top1": 0.8}).status_code == 200


@pytest.mark.parametrize("least", [{"top1": "high"}, {"x" * 133: 0.5}, {str(n): 0 for n in range(65)}, [0.5]])
def test_malformed_least_scores(plane: ControlPlane, artifact: Digest, least: object) -> None:
    assert promote(plane, least=least).status_code == 400
