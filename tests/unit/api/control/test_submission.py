"""Tests of uploading and compiling a model in one request."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from service.api.control.submission import request_again
from service.compiler.lowering import toolchain
from service.core.artifacts.artifact import Report
from service.core.builds.build import BuildState
from service.core.digest import Digest, digest_of
from service.core.errors import BuildFailed
from service.core.target import TARGETS
from tests.support.blobs import blob_file, damage_blob
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, problem
from tests.support.torchscript import archive, script

OTHER = MODEL + b"!"


def test_a_push_returns_the_location_of_a_queued_build(plane: ControlPlane) -> None:
    response = plane.push()
    build = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/api/v1/builds/{build['id']}" == build["links"]["self"]
    assert response.headers["retry-after"]
    assert (build["model"], build["version"], build["state"]) == ("digits", 1, "queued")
    assert (build["source"], build["numerics"]) == (digest_of(MODEL), "litert-reference")


def test_post_is_equivalent_to_put(plane: ControlPlane) -> None:
    response = plane.client.post("/api/v1/models?name=digits", content=MODEL)
    assert response.status_code == 202
    assert response.json()["id"] == plane.push().json()["id"]


def test_a_form_with_one_file_is_accepted(plane: ControlPlane) -> None:
    response = plane.client.post("/api/v1/models?name=digits", files={"file": ("m.tflite", MODEL)})
    assert response.json()["source"] == digest_of(MODEL)


def test_host_is_resolved_at_once(plane: ControlPlane) -> None:
    assert plane.push().json()["target"] == HOST_TARGET
    assert plane.push(target="host").json()["target"] == HOST_TARGET


def test_a_plus_sign_in_a_query_is_not_a_space(plane: ControlPlane) -> None:
    answer = plane.client.put("/api/v1/models?name=a&target=aarch64+dotprod", content=MODEL)
    assert answer.json()["target"] == "aarch64+dotprod"


def test_for_all_a_single_server_builds_for_its_best_target(plane: ControlPlane) -> None:
    assert plane.push(target="all").json()["target"] == HOST_TARGET
    assert len(plane.services.builds.list()[0]) == 1


def test_another_target_is_another_build_of_the_same_version(plane: ControlPlane) -> None:
    first, second = plane.push().json(), plane.push(target="aarch64").json()
    assert first["id"] != second["id"]
    assert (second["version"], second["target"]) == (1, "aarch64")


def test_the_numerics_mode_is_chosen_by_name(plane: ControlPlane) -> None:
    assert plane.push(numerics="xnnpack").json()["numerics"] == "xnnpack"


def test_shapes_of_inputs_are_options_of_the_build(plane: ControlPlane) -> None:
    build = plane.push(input_shape="x=1,3,8,8").json()
    assert build["options"] == {"input_shapes": {"x": [1, 3, 8, 8]}}
    assert build["id"] != plane.push().json()["id"]
    problem(plane.push(input_shape="x=big"), 400, "invalid_input")


def test_fixed_inputs_are_options_of_the_build(plane: ControlPlane) -> None:
    build = plane.push(fix="sr=16000;mask=1,0").json()
    assert build["options"] == {"fixed_inputs": {"sr": [16000], "mask": [1, 0]}}
    assert build["id"] not in (plane.push().json()["id"], plane.push(fix="sr=8000;mask=1,0").json()["id"])
    problem(plane.push(fix="sr=fast"), 400, "invalid_input")
    request = {"targets": ["host"], "options": {"fixed_inputs": {"sr": [16000], "mask": [1, 0]}}}
    assert plane.client.post("/api/v1/models/digits/builds", json=request).json()["builds"][0]["id"] == build["id"]
    request["options"] = {"fixed_inputs": {"": [1]}}
    problem(plane.client.post("/api/v1/models/digits/builds", json=request), 400, "invalid_input")


def test_torchscript_is_recognized_by_the_end_of_its_archive(plane: ControlPlane) -> None:
    build = plane.client.put("/api/v1/models?name=net", content=script(["return x"])).json()
    assert build["numerics"] == "fbgemm"


def test_another_archive_is_refused_after_it_is_received(plane: ControlPlane) -> None:
    """The bytes of the refused archive belong to no model, so garbage collection deletes them."""
    weights = archive({"data.pkl": b"", "data/0": b""})
    refused = problem(plane.push(weights), 415, "unsupported_format")
    assert "not a program" in refused["detail"]
    assert plane.client.get("/api/v1/models").json()["models"] == []


def test_the_same_file_is_the_same_version_and_the_same_build(plane: ControlPlane) -> None:
    assert plane.push().json()["id"] == plane.push().json()["id"]
    assert len(plane.client.get("/api/v1/models/digits").json()["versions"]) == 1


def test_another_file_is_a_new_version(plane: ControlPlane) -> None:
    plane.push()
    assert plane.push(OTHER).json()["version"] == 2


def test_the_same_file_under_another_name_shares_the_build(plane: ControlPlane) -> None:
    first, second = plane.push().json(), plane.push(name="numbers").json()
    assert first["id"] == second["id"]
    assert (second["model"], second["version"]) == ("numbers", 1)


def test_a_model_built_before_is_ready_at_once(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    response = plane.push()
    assert response.status_code == 200
    assert response.json()["state"] == "succeeded"
    assert response.json()["artifact"] == artifact
    assert "retry-after" not in response.headers


def test_hits_and_misses_are_counted(plane: ControlPlane) -> None:
    plane.push()
    plane.push()  # still queued: neither a hit nor a miss
    plane.succeed()
    plane.push()
    text = plane.client.get("/metrics").text
    assert 'octet_cache_misses_total{tier="artifact"} 1.0' in text
    assert 'octet_cache_hits_total{tier="artifact"} 1.0' in text


def test_a_hit_is_written_into_the_stores_index(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    plane.push(name="numbers")
    entry = next(entry for entry in plane.services.layout.index() if entry.digest == artifact)
    assert any("numbers:1" in name for name in entry.annotations)


def test_a_failed_build_is_repeated(plane: ControlPlane) -> None:
    first = plane.push().json()
    plane.fail(BuildFailed("bad luck"))
    response = plane.push()
    assert response.status_code == 202
    assert response.json()["id"] != first["id"]


def library_of(plane: ControlPlane, artifact: Digest) -> Digest:
    return plane.services.layout.manifest(artifact).layers[0].digest


def delete_manifest(plane: ControlPlane, artifact: Digest) -> None:
    plane.services.layout.blobs.delete(artifact)


def damage_manifest(plane: ControlPlane, artifact: Digest) -> None:
    damage_blob(plane.services.layout.root, artifact)


def delete_library(plane: ControlPlane, artifact: Digest) -> None:
    plane.services.layout.blobs.delete(library_of(plane, artifact))


def cut_library(plane: ControlPlane, artifact: Digest) -> None:
    file = blob_file(plane.services.layout.root, library_of(plane, artifact))
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1])


def forget_verification(plane: ControlPlane, artifact: Digest) -> None:
    layout = plane.services.layout
    report = next(entry for entry in layout.referrers(artifact) if entry.artifact_type == Report.NUMERICS)
    layout.remove(report.digest)


def delete_all_blobs(plane: ControlPlane, artifact: Digest) -> None:
    blobs = plane.services.layout.root / "blobs" / "sha256"
    shutil.rmtree(blobs)
    blobs.mkdir()


@pytest.mark.parametrize(
    "lose",
    [delete_manifest, damage_manifest, delete_library, cut_library, forget_verification, delete_all_blobs],
)
def test_a_damaged_artifact_is_built_again(plane: ControlPlane, lose: Callable[[ControlPlane, Digest], None]) -> None:
    first = plane.push().json()
    artifact = plane.succeed()
    lose(plane, artifact)
    response = plane.push()
    assert response.status_code == 202
    assert response.json()["id"] != first["id"]
    assert plane.services.builds.get(first["id"]).invalidated
    assert plane.succeed() == artifact
    assert plane.push().status_code == 200


def test_a_lost_artifact_can_be_requested_again_through_its_build(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    lost = plane.services.builds.invalidate(artifact)[0]
    again = request_again(plane.services, lost)
    assert (again.state, again.key) == (BuildState.QUEUED, lost.key)


def test_other_batch_sizes_and_tuning_are_additional_builds(plane: ControlPlane) -> None:
    answered = plane.push(batch="8,1", tune="2m").json()
    assert answered["options"] == {}
    built = [plane.claim().build for _ in range(4)]
    assert built[0].id == answered["id"]
    tuned = {"tune_s": 120.0}
    assert [build.options for build in built[1:]] == [{"batch": 8}, tuned, {"batch": 8, **tuned}]
    assert plane.push().json()["id"] == answered["id"]


def test_builds_of_a_model_can_be_requested_with_options(plane: ControlPlane) -> None:
    plane.push()
    body = {"targets": ["host"], "options": {"batch": [4], "tune_s": 60}}
    builds = plane.client.post("/api/v1/models/digits/builds", json=body).json()["builds"]
    assert [build["options"] for build in builds] == [{}, {"batch": 4}, {"tune_s": 60.0}, {"batch": 4, "tune_s": 60.0}]


@pytest.mark.parametrize("query", [{"batch": "0"}, {"batch": "many"}, {"tune": "2h"}, {"tune": "soon"}], ids=str)
def test_invalid_options_are_refused_before_anything_is_stored(plane: ControlPlane, query: dict[str, Any]) -> None:
    problem(plane.push(**query), 400, "invalid_input")
    assert plane.client.get("/api/v1/models").json()["models"] == []


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"short", "tflite"),
        (b"\x89PNG" + bytes(100), "predict"),
    ],
)
def test_a_file_of_another_format_is_refused_and_not_stored(plane: ControlPlane, body: bytes, hint: str) -> None:
    assert hint in problem(plane.push(body), 415, "unsupported_format")["hint"]
    assert list(plane.services.layout.blobs.iterate()) == []
    assert plane.client.get("/api/v1/models").json()["models"] == []


def test_a_file_of_another_format_is_refused_after_its_first_bytes(plane: ControlPlane) -> None:
    sent = []

    def body() -> object:
        for _ in range(100):
            sent.append(1)
            yield b"x" * 50

    problem(plane.client.put("/api/v1/models?name=a", content=body()), 415, "unsupported_format")  # type: ignore[arg-type]
    assert len(sent) == 2


def test_an_unknown_target_is_refused_before_the_body_is_read(plane: ControlPlane) -> None:
    response = plane.client.put("/api/v1/models?name=a&target=z80", content=never())  # type: ignore[arg-type]
    document = problem(response, 422, "unknown_target")
    assert all(target.name in document["hint"] for target in TARGETS)


def never() -> object:
    raise AssertionError("the body was read")
    yield b""


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint() -> dict[str, str]:
        raise PackageNotFoundError("ziglang")

    monkeypatch.setattr(toolchain, "fingerprint", fingerprint)


@pytest.mark.usefixtures("without_compiler")
def test_a_server_without_a_compiler_refuses_a_push_before_the_body_is_read(plane: ControlPlane) -> None:
    response = plane.client.put("/api/v1/models?name=digits", content=never())  # type: ignore[arg-type]
    assert "the compiler's package ziglang is not installed" in problem(response, 422, "unsupported")["detail"]


@pytest.mark.usefixtures("without_compiler")
def test_a_server_without_a_compiler_stores_nothing_of_a_push(plane: ControlPlane) -> None:
    source = plane.services.layout.blobs.put_bytes(MODEL)
    for response in (plane.push(OTHER), plane.push(b"", source=source)):
        problem(response, 422, "unsupported")
    problem(plane.client.get("/api/v1/models/digits"), 404, "not_found")
    assert plane.services.models.sources() == []
    assert plane.services.layout.index() == []
    assert list(plane.services.layout.blobs.iterate()) == [source]


def test_an_unknown_numerics_mode_is_refused(plane: ControlPlane) -> None:
    assert "xnnpack" in problem(plane.push(numerics="exact"), 422, "unsupported")["hint"]


@pytest.mark.parametrize("name", ["", "Digits", "-a", "a" * 64, "a/b", "ä", "a\n"])
def test_invalid_names(plane: ControlPlane, name: str) -> None:
    document = problem(plane.push(name=name), 400, "invalid_input")
    assert document["errors"][0]["location"] == "query.name"


def test_a_name_is_needed(plane: ControlPlane) -> None:
    problem(plane.client.put("/api/v1/models", content=MODEL), 400, "invalid_input")


def test_a_file_over_the_limit_is_refused(plane: ControlPlane) -> None:
    problem(plane.push(MODEL + bytes(10_000)), 413, "too_large")


def test_a_form_over_the_limit_is_refused(plane: ControlPlane) -> None:
    response = plane.client.post("/api/v1/models?name=digits", files={"file": ("m", MODEL + bytes(10_000))})
    problem(response, 413, "too_large")


def test_an_empty_body_is_refused(plane: ControlPlane) -> None:
    problem(plane.push(b""), 400, "invalid_input")


def test_a_stored_blob_can_be_pushed_by_its_digest(plane: ControlPlane) -> None:
    plane.client.put(f"/api/v1/blobs/{digest_of(MODEL)}", content=MODEL)
    response = plane.push(b"", source=digest_of(MODEL))
    assert response.status_code == 202
    assert response.json()["source"] == digest_of(MODEL)
    assert plane.client.get("/api/v1/models/digits").json()["versions"][0]["size_bytes"] == len(MODEL)


def test_a_blob_of_another_format_is_refused(plane: ControlPlane) -> None:
    plane.client.put(f"/api/v1/blobs/{digest_of(b'text')}", content=b"text")
    problem(plane.push(b"", source=digest_of(b"text")), 415, "unsupported_format")


def test_a_missing_blob(plane: ControlPlane) -> None:
    problem(plane.push(b"", source=digest_of(b"nothing")), 404, "not_found")


def test_a_damaged_blob_counts_as_missing(plane: ControlPlane) -> None:
    digest = plane.services.layout.blobs.put_bytes(MODEL)
    damage_blob(plane.services.layout.root, digest)
    assert "send the file" in problem(plane.push(b"", source=digest), 404, "not_found")["hint"]
    assert plane.push().status_code == 202


def test_a_source_and_a_body_contradict_each_other(plane: ControlPlane) -> None:
    problem(plane.push(MODEL, source=digest_of(MODEL)), 400, "invalid_input")


def test_a_misspelled_option_is_refused(plane: ControlPlane) -> None:
    response = plane.client.put("/api/v1/models", params={"name": "m", "traget": "host"}, content=MODEL)
    document = problem(response, 400, "invalid_input")
    assert (document["detail"], document["hint"]) == (
        "PUT /api/v1/models has no parameter 'traget'",
        "did you mean target?",
    )
    assert problem(plane.client.get("/api/v1/targets?all=1"), 400, "invalid_input")["hint"] == "it takes none"
    assert plane.client.get("/metrics?all=1").status_code == 200
