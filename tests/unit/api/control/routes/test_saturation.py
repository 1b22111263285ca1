"""Tests of the counts of live values, and of the reasons why there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.core.artifacts.artifact import Report
from service.core.builds.build import BuildInputs
from service.core.digest import Digest, canonical_json
from service.core.errors import BuildFailed
from service.core.models.facts import Scheme
from tests.support.control_plane import FACTS, HOST_TARGET, ControlPlane, control_plane, problem
from tests.support.live_counts import add_counts, counts_of

QUANTIZED = replace(FACTS, activations=Scheme(("int8",), ("per-tensor",), symmetric=False))


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, saturation_share=0.001) as plane:
        plane.push()
        yield plane


def saturation(plane: ControlPlane, **query: Any) -> dict[str, Any]:
    answer = plane.client.get("/api/v1/models/digits/saturation", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def state(plane: ControlPlane) -> tuple[str, str]:
    found = saturation(plane)
    assert found["tensors"] == []
    return found["state"], found["reason"]


def succeed(plane: ControlPlane, facts: Any = QUANTIZED) -> Digest:
    artifact = plane.succeed()
    plane.services.layout.attach(artifact, Report.FACTS, canonical_json(facts.to_json()))
    return artifact


def submit_counting(plane: ControlPlane) -> str:
    version = plane.services.models.get("digits")
    inputs = BuildInputs(version.source, HOST_TARGET, "litert-reference", {}, {"counts": True})
    return plane.services.builds.submit(inputs, "digits", 1)[0].id


def test_tensors_are_listed_with_both_ranges(plane: ControlPlane) -> None:
    add_counts(plane.services, "digits", counts_of(above=25, inside=75, largest=254), counts_of(below=50, inside=50))
    found = saturation(plane)
    assert (found["state"], found["reason"], found["samples"], found["dropped"]) == ("outside", None, 10, 0)
    conv, relu = found["tensors"]
    assert conv["stored"] == {"low": -64, "high": 63.5}
    assert conv["live"] == {"low": -50, "high": 127}
    assert (conv["values"], conv["below"], conv["above"], conv["clipped"]) == (100, 0, 25, 0.25)
    assert (conv["state"], conv["activation"]) == ("outside", [])
    assert (conv["bin_width"], conv["first_edge"], sum(conv["histogram"])) == (2, -192, 100)
    assert (relu["state"], relu["activation"], relu["below"], relu["clipped"]) == ("within", ["low"], 50, 0)


def test_counts_of_few_clipped_values_are_within(plane: ControlPlane) -> None:
    add_counts(plane.services, "digits", counts_of(above=1), counts_of(), dropped=4)
    found = saturation(plane)
    assert (found["state"], found["dropped"]) == ("within", 4)


def test_another_version_has_no_counts(plane: ControlPlane) -> None:
    add_counts(plane.services, "digits", counts_of(), counts_of())
    plane.push(b"\x1c\x00\x00\x00TFL3" + bytes(100))
    assert saturation(plane, version=2)["tensors"] == []
    assert len(saturation(plane, version=1)["tensors"]) == 2


def test_a_server_without_a_share_counts_nothing(tmp_path: Path) -> None:
    with control_plane(tmp_path / "other", saturation_share=0) as plane:
        plane.push()
        assert state(plane) == ("off", "OCTET_SATURATION_SHARE is 0")


def test_a_model_without_samples_waits_for_them(plane: ControlPlane) -> None:
    assert state(plane) == ("waiting", "no request was sampled yet; 1 of 1,000 is")
    succeed(plane)
    assert state(plane) == ("waiting", "no request was sampled yet; 1 of 1,000 is")


def test_the_build_that_counts_is_named_in_each_state(plane: ControlPlane) -> None:
    succeed(plane)
    id = submit_counting(plane)
    assert state(plane) == ("waiting", f"build {id}, which counts, has not ended")
    plane.fail(BuildFailed("no space"))
    assert state(plane) == ("off", f"build {id}, which counts, failed: no space")
    submit_counting(plane)
    plane.succeed()
    assert state(plane) == ("waiting", "no request was counted yet")


def test_a_float_model_is_not_counted(plane: ControlPlane) -> None:
    succeed(plane, FACTS)
    assert state(plane) == ("off", "the model has no activations with fixed ranges")


def test_a_model_on_a_gpu_is_not_counted(tmp_path: Path) -> None:
    with control_plane(tmp_path / "gpu", saturation_share=0.001) as plane:
        plane.push(target="cuda-sm_80")
        succeed(plane)
        assert state(plane) == ("off", "values are counted only on CPUs")


def test_a_model_whose_file_is_gone_is_not_counted(plane: ControlPlane) -> None:
    succeed(plane)
    source = plane.services.models.get("digits").source
    plane.services.layout.blobs.delete(source)
    assert state(plane) == ("off", "the store does not have the model's file")


def test_an_unknown_model_is_not_found(plane: ControlPlane) -> None:
    problem(plane.client.get("/api/v1/models/other/saturation"), 404, "not_found")


def test_builds_that_count_are_not_served(plane: ControlPlane) -> None:
    artifact = succeed(plane)
    submit_counting(plane)
    counting = plane.succeed()
    assert artifact == counting  # `publish` derives the artifact from the file alone
    services = plane.services
    assert [each.options for each in services.builds.serving("digits", 1, [HOST_TARGET])] == [{}]
    assert [each.options for each in services.builds.requested_by({"digits"})] == [{}]
    assert [each.options for each in services.builds.counting("digits", 1)] == [{"counts": True}]
