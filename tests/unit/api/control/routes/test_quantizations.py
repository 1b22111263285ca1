"""Tests of quantizations, with a stand-in for the compile worker."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.compiler.importers.mxnet.package import pack_files
from service.core.builds.build import BuildState, Stage
from service.core.builds.quantization import quantization_of
from service.core.digest import Digest, digest_of
from service.core.errors import InvalidInput
from service.quantize.stored import store
from service.workers.garbage import collect_garbage
from service.workers.quantized import add_for_all
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, control_plane
from tests.support.float_networks import residual_network
from tests.support.tflite_float_network import tflite_residual_network

FLOAT = residual_network()
MXNET = Path(__file__).parents[4] / "fixtures" / "mxnet"
FLOATS = Path(__file__).parents[4] / "fixtures" / "float"
QUANTIZED = b"an ONNX file"
REPORT = {"kept": [], "sensitivity": {"curve": [{"kept": [], "share": 1, "output_db": 40}]}}


def archive(name: str = "a.png") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr(name, b"a picture")
    return file.getvalue()


SET = archive()


def quantize(plane: ControlPlane, body: bytes | None = None, **query: Any) -> httpx.Response:
    content = SET if body is None else body
    return plane.client.post("/api/v1/models/net/quantizations", params=query, content=content)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane with a float model that has no build."""
    with control_plane(tmp_path / "data") as plane:
        assert plane.push(FLOAT, name="net", mean="0.5", std="0.25").status_code == 202
        plane.services.builds.cancel(plane.client.get("/api/v1/builds").json()["builds"][0]["id"])
        yield plane


def succeed(plane: ControlPlane, tmp_path: Path, made: bytes = QUANTIZED) -> Digest:
    """Completes the oldest quantization as a worker would."""
    claim = plane.claim()
    options = quantization_of(claim.inputs.options)
    assert options is not None
    services = plane.services
    services.builds.progress(claim, Stage.CALIBRATE, 0.5)
    (tmp_path / "made").write_bytes(made)
    result = store(services.layout, claim.inputs.source, tmp_path / "made", options.data, REPORT)
    add_for_all(services.layout, services.builds, services.models, claim.build, result)
    services.builds.finish(claim, artifact=result)
    return result


def test_a_quantization_is_a_build(plane: ControlPlane) -> None:
    params: dict[str, Any] = {
        "keep": ["a", "b"],
        "wide": ["c"],
        "bfloat16": ["d"],
        "equalize": True,
        "adaround": True,
        "rounds": 2,
    }
    response = quantize(plane, method="kl", samples=10, budget="0.5%", latency_budget="1.2x", **params)
    assert response.status_code == 202, response.text
    build = response.json()
    assert response.headers["location"] == build["links"]["self"]
    assert build["links"]["quantization"] == f"/api/v1/models/net/quantizations/{build['id']}"
    assert (build["state"], build["target"], build["source"]) == ("queued", HOST_TARGET, digest_of(FLOAT))
    assert build["options"]["quantize"] == {
        "method": "kl",
        "activations": "uint8",
        **params,
        "correct_bias": True,
        "sensitivity": False,
        "budget": 0.005,
        "raise_to": "16x8",
        "latency_budget": "1.2x",
        "samples": 10,
        "metadata": {"mean": [0.5], "std": [0.25]},
        "data": digest_of(SET),
        "dynamic": False,
        "weights": None,
        "block": 32,
    }
    assert (
        quantize(plane, method="kl", samples=10, budget="0.5%", latency_budget="1.2x", **params).json()["id"]
        == build["id"]
    )
    assert plane.client.get(build["links"]["quantization"]).json()["report"] is None
    assert plane.client.get(f"{build['links']['quantization']}/file").status_code == 404


def test_the_result_is_a_version(plane: ControlPlane, tmp_path: Path) -> None:
    build = quantize(plane).json()
    succeed(plane, tmp_path)
    quantization = plane.client.get(build["links"]["quantization"]).json()
    assert (quantization["version"], quantization["source"], quantization["report"]) == (
        2,
        digest_of(QUANTIZED),
        REPORT,
    )
    assert quantization["build"]["artifact"] is None
    assert quantization["build"]["links"]["artifact"] is None
    assert plane.client.get(quantization["file"]).content == QUANTIZED
    version, float_version = plane.client.get("/api/v1/models/net").json()["versions"]
    assert (version["version"], version["state"], version["format"]) == (2, "building", "onnx")
    assert version["metadata"] == float_version["metadata"]
    assert float_version["state"] == "canceled", "the quantization does not count as a build of the float version"
    claim = plane.claim()
    assert (claim.build.version, claim.inputs.source, dict(claim.inputs.options)) == (2, digest_of(QUANTIZED), {})
    (listed,) = plane.client.get("/api/v1/models/net/quantizations").json()["builds"]
    assert listed["id"] == build["id"]


@pytest.mark.parametrize("source", ["network.pt", "network.pt2", "tflite"])
def test_the_numerics_are_those_of_the_produced_file(plane: ControlPlane, tmp_path: Path, source: str) -> None:
    model = tflite_residual_network() if source == "tflite" else (FLOATS / source).read_bytes()
    pushed = plane.push(model, name="other").json()
    assert pushed["numerics"] != "onnxruntime"
    plane.services.builds.cancel(pushed["id"])
    build = plane.client.post("/api/v1/models/other/quantizations", content=SET).json()
    succeed(plane, tmp_path)
    claim = plane.claim()
    assert (claim.build.model, claim.build.version, claim.build.source) == ("other", 2, digest_of(QUANTIZED))
    assert (build["numerics"], claim.inputs.numerics) == ("onnxruntime", "onnxruntime")


@pytest.mark.parametrize("query", [{"dynamic": True}, {"weights": 8}, {"weights": 4, "block": 64}])
def test_dynamic_quantization_needs_no_calibration_set(
    plane: ControlPlane, tmp_path: Path, query: dict[str, Any]
) -> None:
    build = quantize(plane, b"", **query).json()
    options = build["options"]["quantize"]
    assert {name: options[name] for name in query} == query
    assert options["data"] is None
    succeed(plane, tmp_path)
    quantization = plane.client.get(build["links"]["quantization"]).json()
    assert (quantization["version"], quantization["source"]) == (2, digest_of(QUANTIZED))
    again = quantize(plane, b"", version=1, **query).json()
    assert again["id"] == build["id"], "no calibration set is missing, so the result is reused"


def test_an_earlier_result_becomes_a_version_of_another_model_too(plane: ControlPlane, tmp_path: Path) -> None:
    quantize(plane)
    succeed(plane, tmp_path)
    plane.push(FLOAT, name="other", mean="0.5", std="0.25")
    response = plane.client.post("/api/v1/models/other/quantizations", content=SET)
    assert response.status_code == 200
    assert [each["version"] for each in plane.client.get("/api/v1/models/other").json()["versions"]] == [2, 1]


def test_a_lost_result_is_produced_again(plane: ControlPlane, tmp_path: Path) -> None:
    build = quantize(plane).json()
    succeed(plane, tmp_path)
    plane.services.layout.blobs.delete(digest_of(QUANTIZED), 0)
    again = quantize(plane).json()
    assert again["id"] != build["id"]
    assert again["state"] == "queued"


def test_the_calibration_set_is_kept_while_it_is_needed(plane: ControlPlane, tmp_path: Path) -> None:
    build, services = quantize(plane).json(), plane.services

    def collect() -> tuple[Digest, ...]:
        return collect_garbage(
            services.layout, services.builds, services.models, services.crashes, services.verifications, 0
        ).digests

    collect()
    assert services.layout.blobs.exists(digest_of(SET)), "the build waits"
    succeed(plane, tmp_path)
    collect()
    assert services.layout.blobs.exists(digest_of(SET)), "a further quantization may use the set"
    assert plane.client.get(build["links"]["quantization"]).json()["report"] == REPORT
    assert quantize(plane, b"", data=digest_of(SET), method="mse").status_code == 202
    assert plane.client.delete("/api/v1/models/net").is_success
    assert digest_of(SET) in collect()


def test_a_deleted_version_gets_no_quantized_version(plane: ControlPlane, tmp_path: Path) -> None:
    build = quantize(plane).json()
    assert plane.client.delete("/api/v1/models/net").is_success
    assert plane.client.get(f"/api/v1/builds/{build['id']}").status_code == 404


def test_a_quantization_can_fail_and_be_canceled_like_any_build(plane: ControlPlane) -> None:
    build = quantize(plane).json()
    plane.fail(InvalidInput("upload: input 2 is NaN", stage=Stage.CALIBRATE, tensor="image"))
    quantization = plane.client.get(build["links"]["quantization"]).json()["build"]
    assert quantization["error"]["stage"] == "calibrate"
    assert quantization["error"]["tensor"] == "image"
    again = quantize(plane).json()
    assert again["id"] != build["id"]
    assert plane.client.post(f"/api/v1/builds/{again['id']}/cancel").json()["state"] == BuildState.CANCELED


@pytest.mark.parametrize(
    ("body", "query", "status", "message"),
    [
        (b"", {}, 400, "the body is empty"),
        (b"no archive", {}, 415, "neither a zip archive nor a NumPy array"),
        (None, {"budget": "much"}, 400, "is not a share"),
        (None, {"latency_budget": "much"}, 400, "is not a latency budget"),
        (None, {"method": "best"}, 400, ""),
        (None, {"samples": 0}, 400, ""),
        (None, {"version": 7}, 404, "7"),
        (None, {"target": "6502"}, 422, "6502"),
        (None, {"data": "sha256:" + 64 * "0"}, 400, "both a source and a body"),
        (b"", {"data": "sha256:" + 64 * "0"}, 404, ""),
        (None, {"dynamic": True}, 400, "in one of three ways"),
        (b"", {"dynamic": True, "weights": 4}, 400, "in one of three ways"),
        (b"", {"weights": 8, "data": "sha256:" + 64 * "0"}, 400, "in one of three ways"),
        (b"", {"weights": 5}, 400, "weights of 5 bits in blocks of 32"),
        (b"", {"weights": 4, "block": 48}, 400, "weights of 4 bits in blocks of 48"),
        (b"", {"weights": 2}, 400, ""),
        (b"", {"dynamic": True, "block": 64}, 400, "block cannot be combined"),
        (b"", {"dynamic": True, "method": "kl", "budget": "1%"}, 400, "method, budget cannot be combined"),
        (None, {"block": 64}, 400, "block cannot be combined"),
    ],
)
def test_invalid_requests_are_refused(
    plane: ControlPlane, body: bytes | None, query: Any, status: int, message: str
) -> None:
    response = quantize(plane, body, **query)
    assert response.status_code == status, response.text
    assert message in response.json()["detail"]


def test_an_unsupported_format_has_a_hint(plane: ControlPlane) -> None:
    plane.push(pack_files(next(MXNET.glob("*-symbol.json"))), name="net")
    response = quantize(plane)
    assert response.status_code == 422
    assert "models of the format mxnet cannot be quantized" in response.json()["detail"]
    assert "as ONNX" in response.json()["hint"]


def test_a_tflite_model_is_quantized(plane: ControlPlane) -> None:
    plane.push(MODEL, name="net")
    response = quantize(plane, version=2)
    assert response.status_code == 202, response.text


def test_other_builds_are_not_quantizations(plane: ControlPlane) -> None:
    build = plane.push(MODEL, name="net").json()
    assert plane.client.get(f"/api/v1/models/net/quantizations/{build['id']}").status_code == 404
    id = quantize(plane, version=1).json()["id"]
    plane.push(MODEL, name="other")
    assert plane.client.get(f"/api/v1/models/other/quantizations/{id}").status_code == 404


def test_each_tenants_model_has_its_own_quantization(plane: ControlPlane, tmp_path: Path) -> None:
    """If tenants shared a quantization, they would see each other's builds."""

    def newest(model: str) -> dict[str, Any]:
        found: dict[str, Any] = plane.client.get("/api/v1/builds", params={"model": model}).json()["builds"][0]
        return found

    seen = set()
    for model in ("acme~net", "beta~net"):
        plane.push(FLOAT, name=model, mean="0.5", std="0.25")
        plane.services.builds.cancel(newest(model)["id"])
        quantization = plane.client.post(f"/api/v1/models/{model}/quantizations", content=SET).json()
        succeed(plane, tmp_path)
        compilation = newest(model)
        plane.services.builds.cancel(compilation["id"])
        assert compilation["source"] == digest_of(QUANTIZED)
        assert compilation["models"] == [{"name": model, "version": 2}]
        assert quantization["models"] == [{"name": model, "version": 1}]
        seen |= {quantization["id"], compilation["key"]}
    assert len(seen) == 4
